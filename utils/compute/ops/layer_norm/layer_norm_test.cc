#include "utils/compute/ops/layer_norm/layer_norm.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/graph/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

Value AsFloat32(Value v) {
  return v.dtype() == DType::kFloat32 ? v : Apply("Cast", {v}, Attrs{{"dtype", DType::kFloat32}});
}

// Values and gradients of all three inputs, at the formula of the header.
void CheckLayerNorm(Shape shape, double epsilon) {
  const int64_t n = shape.dim(-1);
  const testing::OpCase test{
      .op = "LayerNorm",
      .inputs = {testing::RandomTensor(shape, 1, -2, 2), testing::RandomTensor({n}, 2, 0.5, 1.5),
                 testing::RandomTensor({n}, 3)},
      .build =
          [=](absl::Span<const Value> in) {
            return std::vector<Value>{
                LayerNorm(in[0], AsFloat32(in[1]), AsFloat32(in[2]), static_cast<float>(epsilon))};
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            Doubles y(in[0].size());
            for (size_t r = 0; r < y.size(); r += n) {
              double mean = 0, variance = 0;
              for (int64_t i = 0; i < n; ++i) mean += in[0][r + i] / n;
              for (int64_t i = 0; i < n; ++i) variance += std::pow(in[0][r + i] - mean, 2) / n;
              for (int64_t i = 0; i < n; ++i) {
                y[r + i] = (in[0][r + i] - mean) / std::sqrt(variance + epsilon) * in[1][i] + in[2][i];
              }
            }
            return std::vector<Doubles>{y};
          },
  };
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("LayerNorm, values and gradients") {
  CheckLayerNorm({5, GENERATE(3, 16, 67)}, 1e-6);
  CheckLayerNorm({2, 3, 40}, 1e-3);
  CheckLayerNorm({8}, 1e-6);
}

TEST_CASE("LayerNorm of many rows and of long ones, values and gradients") {
  // More than one chunk of rows; a row for more than a warp, with and without wide loads.
  CheckLayerNorm(GENERATE(Shape{100, 24}, Shape{140, 12}, Shape{1030}, Shape{1, 1040}), 1e-6);
}

Tensor Normalize(const std::string& kind, const Tensor& x) {
  const int64_t n = x.shape().dim(-1);
  const Tensor ones = Tensor(DType::kFloat32, {n});
  std::fill_n(ones.data<float>(), n, 1.0f);
  return testing::RunOn(kind, {x, ones, Tensor(DType::kFloat32, {n})}, [](absl::Span<const Value> in) {
    return std::vector<Value>{LayerNorm(in[0], in[1], in[2])};
  })[0];
}

// Seen in the official transformer's LayerNormalization under TensorFlow 1.10.
TEST_CASE("LayerNorm equals TensorFlow's") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor y = Normalize(kind, Tensor::Of<float>({1, 4}, {1, 2, 3, 4}));
  const float want[] = {-1.3416404f, -0.4472134f, 0.4472134f, 1.3416404f};
  for (int i = 0; i < 4; ++i) CHECK(y.data<float>()[i] == Approx(want[i]).epsilon(1e-6));
}

// 4096 + {1, 2, 3, 4} is exact in float; its mean of squares has no digits left for the variance.
TEST_CASE("A row far from 0 keeps its digits") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor y = Normalize(kind, Tensor::Of<float>({1, 4}, {4097, 4098, 4099, 4100}));
  CHECK(y.data<float>()[0] == Approx(-1.3416404f).epsilon(1e-6));
  CHECK(y.data<float>()[3] == Approx(1.3416404f).epsilon(1e-6));
}

TEST_CASE("A row of equal numbers becomes beta") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor y = Normalize(kind, Tensor::Of<float>({2, 1}, {3, -7}));
  CHECK(y.data<float>()[0] == 0);
  CHECK(y.data<float>()[1] == 0);
}

TEST_CASE("Gradients have the same bits for any number of threads") {
  const int threads = NumThreads();
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 3, 7}) {
    SetNumThreads(n);
    const std::vector<Tensor> out = testing::RunOnCpu(
        {testing::RandomTensor({1000, 96}, 1), testing::RandomTensor({96}, 2), testing::RandomTensor({96}, 3)},
        [](absl::Span<const Value> in) { return Gradients(LayerNorm(in[0], in[1], in[2]), in); });
    results.emplace_back();
    for (const Tensor& t : out)
      results.back().insert(results.back().end(), t.flat<float>().begin(), t.flat<float>().end());
  }
  SetNumThreads(threads);
  CHECK(results[0].size() == 1000 * 96 + 2 * 96);
  CHECK(results[1] == results[0]);
  CHECK(results[2] == results[0]);
  CHECK(results[3] == results[0]);
}

TEST_CASE("A gamma of another size is refused") {
  const absl::Status status = testing::BuildStatus(
      {{DType::kFloat32, {2, 4}}, {DType::kFloat32, {3}}, {DType::kFloat32, {4}}},
      [](absl::Span<const Value> in) { return std::vector<Value>{LayerNorm(in[0], in[1], in[2])}; });
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("needs float32 gamma [C] and beta [C]; inputs are float32[2,4], float32[3], float32[4]"));
}

}  // namespace
}  // namespace official::compute
