#include <algorithm>
#include <catch2/catch.hpp>

#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using Build = std::function<std::vector<Value>(absl::Span<const Value>)>;

const std::vector<Tensor> kInputs = {testing::RandomTensor({2, 6, 5, 3}, 1), testing::RandomTensor({3, 3, 3, 16}, 2),
                                     testing::RandomTensor({16}, 3), testing::RandomTensor({2, 6, 5, 16}, 4),
                                     // Images, filters of two sizes and bias of another convolution.
                                     testing::RandomTensor({2, 6, 5, 3}, 5), testing::RandomTensor({3, 3, 3, 16}, 6),
                                     testing::RandomTensor({1, 1, 3, 16}, 7), testing::RandomTensor({16}, 8)};

// The ops that are left of the program, whose results must be those of the program without fusion.
std::vector<OpName> Fused(const Build& build) {
  std::vector<TensorType> types;
  for (const Tensor& t : kInputs) types.push_back(t.type());
  for (const std::string& kind : testing::KindsUnderTest()) {
    const std::vector<Tensor> fused = testing::RunOn(kind, kInputs, build);
    const std::vector<Tensor> plain = testing::RunOn(kind, kInputs, build, {.fuse = false});
    for (size_t i = 0; i < fused.size(); ++i) {
      INFO(kind << ", output " << i);
      const Doubles a = testing::ToDoubles(fused[i]), b = testing::ToDoubles(plain[i]);
      REQUIRE(a.size() == b.size());
      double largest = 0;
      for (size_t j = 0; j < a.size(); ++j) largest = std::max(largest, std::abs(a[j] - b[j]));
      CHECK(largest < 1e-5);
    }
  }
  return testing::CompiledOps(types, build);
}

using Ops = std::vector<OpName>;

TEST_CASE("Bias and ReLU become part of the convolution") {
  CHECK(Fused([](auto in) { return std::vector<Value>{BiasAdd(Conv2D(in[0], in[1]), in[2])}; }) ==
        Ops{op::FusedConv2D});
  CHECK(Fused([](auto in) { return std::vector<Value>{Relu(BiasAdd(Conv2D(in[0], in[1]), in[2]))}; }) ==
        Ops{op::FusedConv2D});
}

TEST_CASE("A value that others read stays") {
  const Ops ops = Fused([](auto in) {
    const Value y = BiasAdd(Conv2D(in[0], in[1]), in[2]);
    return std::vector<Value>{y, Relu(y)};
  });
  CHECK(ops == Ops{op::FusedConv2D, op::Relu});
  const Ops both = Fused([](auto in) {
    const Value y = Conv2D(in[0], in[1]);
    return std::vector<Value>{y, Relu(BiasAdd(y, in[2]))};
  });
  CHECK(both.front() == op::Conv2D);
}

TEST_CASE("The gradients of filters and bias come from one kernel") {
  const auto gradients = [](absl::Span<const Value> in, std::vector<Value> xs) {
    const std::vector<Value> y = {Relu(BiasAdd(Conv2D(in[0], in[1]), in[2]))};
    const std::vector<Value> seeds = {in[3]};
    return Gradients(y, seeds, xs);
  };
  CHECK(Fused([=](auto in) {
          return gradients(in, {in[0], in[1], in[2]});
        }) == Ops{op::FusedConv2D, op::ReluGrad, op::FusedConv2DBackpropFilter, op::Conv2DBackpropInput});
  CHECK(Fused([=](auto in) {
          return gradients(in, {in[1], in[2]});
        }) == Ops{op::FusedConv2D, op::ReluGrad, op::FusedConv2DBackpropFilter});
  // Without the bias's gradient there is nothing to fuse.
  CHECK(Fused([=](auto in) { return gradients(in, {in[1]}); }) ==
        Ops{op::FusedConv2D, op::ReluGrad, op::Conv2DBackpropFilter});
}

// Add gives the gradient of its output to both convolutions.
TEST_CASE("Of convolutions with the same output gradient only one gets it from a kernel with a bias") {
  const int filters = GENERATE(5, 6);
  const bool both_have_a_bias = GENERATE(false, true);
  CAPTURE(filters, both_have_a_bias);
  const Ops ops = Fused([=](auto in) {
    const Value a = BiasAdd(Conv2D(in[0], in[1]), in[2]), b = Conv2D(in[4], in[filters]);
    const std::vector<Value> y = {Add(a, both_have_a_bias ? BiasAdd(b, in[7]) : b)}, seeds = {in[3]};
    std::vector<Value> xs = {in[1], in[2], in[filters]};
    if (both_have_a_bias) xs.push_back(in[7]);
    return Gradients(y, seeds, xs);
  });
  CHECK(std::count(ops.begin(), ops.end(), op::FusedConv2DBackpropFilter) == 1);
  CHECK(std::count(ops.begin(), ops.end(), op::Conv2DBackpropFilter) == 1);
}

}  // namespace
}  // namespace official::compute
