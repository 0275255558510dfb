#include "utils/compute/ops/reduction/reduction.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::OpCase;
using testing::RandomTensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Reduction {
  OpName op;
  Value (*build)(Value, std::vector<int64_t>, bool);
  double (*reduce)(const Doubles&);
};

double SumOf(const Doubles& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum;
}
double MeanOf(const Doubles& x) { return SumOf(x) / static_cast<double>(x.size()); }
double MaxOf(const Doubles& x) {
  double max = -kInf;
  for (const double v : x) max = std::max(max, v);
  return max;
}
double MinOf(const Doubles& x) {
  double min = kInf;
  for (const double v : x) min = std::min(min, v);
  return min;
}

const Reduction kReductions[] = {
    {op::Sum, Sum, SumOf}, {op::Mean, Mean, MeanOf}, {op::Max, Max, MaxOf}, {op::Min, Min, MinOf}};

// Numbers in [-1, 1) that bfloat16 holds, no two of 127 neighbours the same.
Tensor DistinctNumbers(const Shape& shape) {
  Tensor x(DType::kFloat32, shape);
  for (int64_t i = 0; i < x.num_elements(); ++i) x.data<float>()[i] = static_cast<float>(i * 37 % 127) / 64 - 1;
  return x;
}

// The elements of x [shape] in groups of those that differ in the reduced axes only.
std::vector<Doubles> Groups(const Doubles& x, const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<Doubles> groups;
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    int64_t group = 0, rest = i;
    for (int d = 0; d < shape.rank(); ++d) {
      const int64_t stride = shape.Product(d + 1, shape.rank());
      const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
      if (!reduced) group = group * shape.dim(d) + rest / stride;
      rest %= stride;
    }
    if (group >= static_cast<int64_t>(groups.size())) groups.resize(group + 1);
    groups[group].push_back(x[i]);
  }
  return groups;
}

OpCase CaseOf(const Reduction& reduction, const Tensor& x, const std::vector<int64_t>& axes) {
  return {.op = reduction.op,
          .inputs = {x},
          .build = [=](absl::Span<const Value> in) { return std::vector<Value>{reduction.build(in[0], axes, false)}; },
          .reference =
              [=, shape = x.shape()](const std::vector<Doubles>& in) {
                Doubles y;
                for (const Doubles& group : Groups(in[0], shape, axes)) y.push_back(reduction.reduce(group));
                return std::vector<Doubles>{y};
              }};
}

TEST_CASE("Values and gradients over any axes") {
  struct Axes {
    Shape shape;
    std::vector<int64_t> axes;
  };
  const Axes test = GENERATE(values<Axes>({
      {{}, {}},
      {{1}, {0}},
      {{17}, {0}},
      {{7, 5}, {0}},
      {{7, 5}, {1}},
      {{7, 5}, {0, 1}},
      {{3, 1, 33}, {1}},
      {{3, 4, 5}, {1}},
      {{3, 4, 5}, {0, 2}},
      {{2, 3, 4, 5}, {0, 2}},
      {{2, 3, 4, 5}, {1, 3}},
      {{2, 3, 4, 5}, {0, 1, 2}},
      {{2, 70}, {0}},
  }));
  for (const Reduction& reduction : kReductions) {
    const OpCase c = CaseOf(reduction, DistinctNumbers(test.shape), test.axes);
    testing::CheckForward(c);
    testing::CheckGradients(c);
  }
}

// Sizes at which the kernels cut their work into tasks.
TEST_CASE("Values of large arrays") {
  struct Axes {
    Shape shape;
    std::vector<int64_t> axes;
  };
  const Axes test = GENERATE(values<Axes>({
      {{200001}, {0}},
      {{70, 1500}, {1}},
      {{9001, 10}, {0}},
      {{301, 1100}, {0}},
      {{3, 67000}, {1}},
      {{2, 40000, 3}, {1}},
      {{40, 65, 50}, {0, 2}},
  }));
  for (const Reduction& reduction : kReductions) {
    // So small that half holds their sums.
    testing::CheckForward(CaseOf(reduction, RandomTensor(test.shape, 6, 0, 0.5), test.axes));
  }
}

TEST_CASE("keep_dims and negative axes") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const auto shape_of = [&](std::vector<int64_t> axes, bool keep_dims) {
    return testing::RunOn(
               kind, {RandomTensor({2, 3, 4}, 1)},
               [&](absl::Span<const Value> in) { return std::vector<Value>{Sum(in[0], axes, keep_dims)}; })[0]
        .shape();
  };
  CHECK(shape_of({1}, true) == Shape{2, 1, 4});
  CHECK(shape_of({-1}, false) == Shape{2, 3});
  CHECK(shape_of({0, -1}, true) == Shape{1, 3, 1});
  CHECK(shape_of({}, false) == Shape{2, 3, 4});
}

TEST_CASE("The mean of a million elements is exact to 1e-6") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = RandomTensor({1000003}, 8, 0, 1);
  const double want = MeanOf(testing::ToDoubles(x));
  const Tensor y =
      testing::RunOn(kind, {x}, [](absl::Span<const Value> in) { return std::vector<Value>{Mean(in[0])}; })[0];
  CHECK(std::abs(y.scalar<float>() - want) < 1e-6 * want);
  const Tensor column = testing::RunOn(kind, {x.Reshaped({1000003, 1})}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Mean(in[0], {0})};
  })[0];
  CHECK(std::abs(column.data<float>()[0] - want) < 1e-6 * want);
}

TEST_CASE("The result does not depend on the number of threads") {
  const Shape shape = GENERATE(Shape{300000}, Shape{5000, 32}, Shape{100, 3000});
  const auto run = [&](int num_threads) {
    const auto device = MakeDevice("cpu", {.num_threads = num_threads}).value();
    Graph graph;
    const Value x = graph.Input("x", {DType::kFloat32, shape});
    return Evaluate(graph, {{x}, {Sum(x), Sum(x, {0})}, {}}, {RandomTensor(shape, 3)}, *device).value();
  };
  const std::vector<Tensor> one = run(1), three = run(3);
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(std::memcmp(one[i].raw_data(), three[i].raw_data(), one[i].num_bytes()) == 0);
  }
}

TEST_CASE("BiasAddGrad sums over all but the last dimension") {
  const Shape shape = GENERATE(Shape{1}, Shape{100}, Shape{5, 3}, Shape{2, 3, 4, 17}, Shape{0, 3});
  const int parts = GENERATE(1, 2, 4);
  CAPTURE(shape.ToString(), parts);
  const OpCase test{.op = op::BiasAddGrad,
                    .inputs = {RandomTensor(shape, 4)},
                    .build =
                        [=](absl::Span<const Value> in) {
                          in[0].graph()->set_batch_parts(parts);
                          return std::vector<Value>{BiasAddGrad(in[0])};
                        },
                    .reference =
                        [=](const std::vector<Doubles>& in) {
                          Doubles sum(shape.dim(-1), 0);
                          for (size_t i = 0; i < in[0].size(); ++i) sum[i % sum.size()] += in[0][i];
                          return std::vector<Doubles>{sum};
                        }};
  testing::CheckForward(test);
}

std::vector<float> ReducedOn(const std::string& kind, Value (*reduce)(Value, std::vector<int64_t>, bool),
                             const Tensor& x, std::vector<int64_t> axes) {
  const Tensor y = testing::RunOn(
      kind, {x}, [&](absl::Span<const Value> in) { return std::vector<Value>{reduce(in[0], axes, false)}; })[0];
  return {y.data<float>(), y.data<float>() + y.num_elements()};
}

// All as TensorFlow 2.15 gives.
TEST_CASE("No elements, NaN and infinity") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const auto reduced = [&](Value (*reduce)(Value, std::vector<int64_t>, bool), const Tensor& x,
                           std::vector<int64_t> axes) { return ReducedOn(kind, reduce, x, std::move(axes)); };
  const Tensor empty(DType::kFloat32, {0});
  CHECK(reduced(Sum, empty, {0})[0] == 0);
  CHECK(std::isnan(reduced(Mean, empty, {0})[0]));
  CHECK(reduced(Max, empty, {0})[0] == -kInf);
  CHECK(reduced(Min, empty, {0})[0] == kInf);
  CHECK(reduced(Sum, Tensor(DType::kFloat32, {0, 3}), {0}) == std::vector<float>{0, 0, 0});
  CHECK(reduced(Sum, Tensor(DType::kFloat32, {0, 3}), {1}).empty());
  for (const int64_t at : {0, 1, 2}) {
    Tensor x = Tensor::Of<float>({3}, {1, 2, 3});
    x.data<float>()[at] = kNaN;
    CHECK(std::isnan(reduced(Max, x, {0})[0]));
    CHECK(std::isnan(reduced(Min, x, {0})[0]));
    CHECK(std::isnan(reduced(Max, x.Reshaped({3, 1}), {0})[0]));
  }
  CHECK(reduced(Max, Tensor::Of<float>({2}, {-kInf, -5}), {0})[0] == -5);
  CHECK(reduced(Sum, Tensor::Of<float>({2}, {kInf, -5}), {0})[0] == kInf);
}

TEST_CASE("A mean is finite where the sum is beyond float32") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x(DType::kFloat32, {1000});
  std::fill_n(x.data<float>(), x.num_elements(), 5e36f);
  CHECK(ReducedOn(kind, Mean, x, {0})[0] == Approx(5e36f));
  CHECK(ReducedOn(kind, Mean, x.Reshaped({1000, 1}), {0})[0] == Approx(5e36f));
}

TEST_CASE("Ties share the gradient of Max") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = Tensor::Of<float>({2, 3}, {1, 3, 3, 5, 2, 1});
  const Tensor dx =
      testing::RunOn(kind, {x}, [](absl::Span<const Value> in) { return Gradients(Max(in[0], {1}), {in[0]}); })[0];
  CHECK(testing::ToDoubles(dx) == Doubles{0, 0.5, 0.5, 1, 0, 0});
}

TEST_CASE("Wrong axes are refused while building") {
  const auto message = [](std::vector<int64_t> axes) {
    return std::string(testing::BuildStatus({{DType::kFloat32, {2, 3}}}, [&](absl::Span<const Value> in) {
                         return std::vector<Value>{Sum(in[0], axes)};
                       }).message());
  };
  CHECK(message({2}) == "Sum: has no axis 2; inputs are float32[2,3]");
  CHECK(message({-3}) == "Sum: has no axis -3; inputs are float32[2,3]");
  CHECK(message({1, -1}) == "Sum: reduces axis -1 twice; inputs are float32[2,3]");
  const absl::Status integers = testing::BuildStatus(
      {{DType::kInt32, {2}}}, [](absl::Span<const Value> in) { return std::vector<Value>{Mean(in[0])}; });
  CHECK(integers.message() == "Mean: needs 1 floating input; inputs are int32[2]");
}

}  // namespace
}  // namespace official::compute
