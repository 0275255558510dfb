#include "utils/compute/ops/layer_norm/layer_norm.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

Value AsFloat32(Value v) { return Cast(v, DType::kFloat32); }

// Values and gradients of all three inputs, at the formula of the header.
void CheckLayerNorm(Shape shape, double epsilon) {
  const int64_t n = shape.dim(-1);
  const testing::OpCase test{
      .op = op::LayerNorm,
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

constexpr double kRate = 0.25;

// Sequences of 2, 0, 1 and 4 tokens and three rows of padding, which hold NaN.
struct Residual {
  int64_t columns;
  double rate;

  int64_t rows() const { return 10; }
  std::vector<Tensor> Inputs() const {
    Tensor x = testing::RandomTensor({rows(), columns}, 1, -2, 2),
           s = testing::RandomTensor({rows(), columns}, 2, -2, 2);
    for (const Tensor& t : {x, s}) {
      std::fill_n(t.data<float>() + 7 * columns, 3 * columns, std::numeric_limits<float>::quiet_NaN());
    }
    return {x,
            s,
            testing::RandomTensor({columns}, 3, 0.5, 1.5),
            testing::RandomTensor({columns}, 4),
            Tensor::Of<int32_t>({5}, {0, 2, 2, 3, 7}),
            Tensor::Of<int64_t>({3}, {1, 2, 30})};
  }
  ResidualLayerNormOutputs Build(absl::Span<const Value> in) const {
    return ResidualLayerNorm({in[0], in[1], AsFloat32(in[2]), AsFloat32(in[3]), in[4], in[5]},
                             {.epsilon = 1e-3f, .dropout_rate = rate, .name = "residual"});
  }
  // What dropout makes of ones.
  std::vector<float> Factors() const {
    Tensor ones(DType::kFloat32, {rows(), columns});
    std::fill_n(ones.data<float>(), ones.num_elements(), 1.0f);
    const Tensor factors = testing::RunOnCpu({ones, Inputs()[4], Inputs()[5]}, [&](absl::Span<const Value> in) {
      return std::vector<Value>{PackedDropout(in[0], in[1], rate, in[2], "residual")};
    })[0];
    return {factors.flat<float>().begin(), factors.flat<float>().end()};
  }
  testing::OpCase Case(bool normalized, bool sum) const {
    return {
        .op = op::ResidualLayerNorm,
        .inputs = Inputs(),
        .build =
            [=, *this](absl::Span<const Value> in) {
              const ResidualLayerNormOutputs out = Build(in);
              std::vector<Value> values;
              if (sum) values.push_back(out.sum);
              if (normalized) values.push_back(out.normalized);
              return values;
            },
        .reference =
            [=, *this, factors = Factors()](const std::vector<Doubles>& in) {
              Doubles sums(in[0].size()), y(in[0].size());
              for (size_t r = 0; r < static_cast<size_t>(7 * columns); r += columns) {
                double mean = 0, variance = 0;
                for (int64_t i = 0; i < columns; ++i) {
                  sums[r + i] = in[0][r + i] + in[1][r + i] * factors[r + i];
                  mean += sums[r + i] / columns;
                }
                for (int64_t i = 0; i < columns; ++i) variance += std::pow(sums[r + i] - mean, 2) / columns;
                for (int64_t i = 0; i < columns; ++i) {
                  y[r + i] = (sums[r + i] - mean) / std::sqrt(variance + 1e-3) * in[2][i] + in[3][i];
                }
              }
              std::vector<Doubles> values;
              if (sum) values.push_back(sums);
              if (normalized) values.push_back(y);
              return values;
            },
    };
  }
};

TEST_CASE("ResidualLayerNorm, values and gradients") {
  const Residual residual = {GENERATE(5, 32, 67), GENERATE(0.0, kRate)};
  testing::CheckForward(residual.Case(true, true));
  testing::CheckGradients(residual.Case(true, true));
}

TEST_CASE("ResidualLayerNorm of one result only, gradients") {
  const Residual residual = {6, kRate};
  testing::CheckGradients(residual.Case(true, false));
  const testing::OpCase sum = residual.Case(false, true);
  // Of the sum alone: gamma and beta have gradients of 0.
  testing::CheckGradients(sum);
}

TEST_CASE("ResidualLayerNorm of rows of more than one chunk of random numbers") {
  testing::CheckForward(Residual{1100, kRate}.Case(true, true));
}

TEST_CASE("ResidualLayerNorm has the same bits for any number of threads") {
  const Residual residual = {2000, kRate};
  const int threads = NumThreads();
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 3, 7}) {
    SetNumThreads(n);
    const std::vector<Tensor> out = testing::RunOnCpu(residual.Inputs(), [&](absl::Span<const Value> in) {
      const ResidualLayerNormOutputs out = residual.Build(in);
      std::vector<Value> values = Gradients({out.sum, out.normalized}, {out.normalized, out.sum}, in.subspan(0, 4));
      values.push_back(out.normalized);
      return values;
    });
    results.emplace_back();
    for (const Tensor& t : out) {
      results.back().insert(results.back().end(), t.flat<float>().begin(), t.flat<float>().end());
    }
  }
  SetNumThreads(threads);
  CHECK(results[0].size() == 3 * 20000 + 2 * 2000);
  for (const std::vector<float>& result : results) CHECK(result == results[0]);
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
