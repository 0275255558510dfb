#include "utils/compute/ops/batch_norm/batch_norm.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/reorder/reorder.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using Ops = std::vector<OpName>;

constexpr double kEpsilon = 1e-3;

struct Normalized {
  Doubles y, mean, variance;  // the variance with Bessel's correction
};

// The definition.
Normalized Normalize(const Doubles& x, const Doubles& gamma, const Doubles& beta) {
  const size_t channels = gamma.size(), n = x.size() / channels;
  Normalized result{Doubles(x.size()), Doubles(channels), Doubles(channels)};
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i * channels + c];
    const double mean = sum / n;
    for (size_t i = 0; i < n; ++i) squares += (x[i * channels + c] - mean) * (x[i * channels + c] - mean);
    for (size_t i = 0; i < n; ++i) {
      result.y[i * channels + c] =
          gamma[c] * (x[i * channels + c] - mean) / std::sqrt(squares / n + kEpsilon) + beta[c];
    }
    result.mean[c] = mean;
    result.variance[c] = squares / std::max<size_t>(n - 1, 1);
  }
  return result;
}

Value Float(Value x) { return x.dtype() == DType::kFloat32 ? x : Cast(x, DType::kFloat32); }
Value Blocked(Value x) { return Reorder(x, Layout::kRowMajor, Layout::kChannelBlocked); }
std::vector<OpName> NeededFor(bool blocked) { return std::vector<OpName>(blocked ? 1 : 0, op::Reorder); }

// What follows the normalization.
enum class After { kNothing, kRelu, kAdd, kAddRelu };

// Inputs x, gamma, beta and, for kAdd and kAddRelu, what is added.
std::vector<Tensor> Inputs(const Shape& shape, After after) {
  std::vector<Tensor> inputs = {testing::RandomTensor(shape, 1, -2, 3),
                                testing::RandomTensor({shape.dim(-1)}, 2, 0.5, 2),
                                testing::RandomTensor({shape.dim(-1)}, 3)};
  if (after == After::kAdd || after == After::kAddRelu) inputs.push_back(testing::RandomTensor(shape, 4));
  return inputs;
}

Value Finish(Value y, absl::Span<const Value> in, After after) {
  if (after == After::kAdd || after == After::kAddRelu) y = Add(y, in[3]);
  return after == After::kRelu || after == After::kAddRelu ? Relu(y) : y;
}
Doubles Finish(Doubles y, const std::vector<Doubles>& in, After after) {
  for (size_t i = 0; i < y.size(); ++i) {
    if (after == After::kAdd || after == After::kAddRelu) y[i] += in[3][i];
    if (after == After::kRelu || after == After::kAddRelu) y[i] = std::max(y[i], 0.0);
  }
  return y;
}

testing::OpCase TrainingCase(const Shape& shape, After after, bool statistics, bool blocked = false) {
  return {
      .op = op::FusedBatchNorm,
      .inputs = Inputs(shape, after),
      .build =
          [=](absl::Span<const Value> in) {
            const BatchNormResult norm =
                FusedBatchNorm(blocked ? Blocked(in[0]) : in[0], Float(in[1]), Float(in[2]), kEpsilon);
            const Value y = Finish(norm.y, in, after);
            return statistics ? std::vector<Value>{y, norm.mean, norm.variance} : std::vector<Value>{y};
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            Normalized norm = Normalize(in[0], in[1], in[2]);
            norm.y = Finish(norm.y, in, after);
            return statistics ? std::vector<Doubles>{norm.y, norm.mean, norm.variance} : std::vector<Doubles>{norm.y};
          },
      .needs = NeededFor(blocked),
  };
}

testing::OpCase InferenceCase(const Shape& shape, After after, bool blocked = false) {
  const int64_t channels = shape.dim(-1);
  const Tensor mean = testing::RandomTensor({channels}, 5), variance = testing::RandomTensor({channels}, 6, 0.5, 2);
  // In the type that the kernel reads them in, so that bfloat16 does not round them.
  const auto constant = [](absl::Span<const Value> in, const Tensor& t) { return in[0].graph()->Constant(t); };
  return {
      .op = op::FusedBatchNormInference,
      .inputs = Inputs(shape, after),
      .build =
          [=](absl::Span<const Value> in) {
            const Value y = FusedBatchNormInference(blocked ? Blocked(in[0]) : in[0], Float(in[1]), Float(in[2]),
                                                    constant(in, mean), constant(in, variance), kEpsilon);
            return std::vector<Value>{Finish(y, in, after)};
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            Doubles y(in[0].size());
            for (size_t i = 0; i < y.size(); ++i) {
              const size_t c = i % channels;
              y[i] = in[1][c] * (in[0][i] - mean.data<float>()[c]) / std::sqrt(variance.data<float>()[c] + kEpsilon) +
                     in[2][c];
            }
            return std::vector<Doubles>{Finish(y, in, after)};
          },
      .needs = NeededFor(blocked),
  };
}

constexpr After kAll[] = {After::kNothing, After::kRelu, After::kAdd, After::kAddRelu};

TEST_CASE("Training normalizes with the batch's own mean and variance") {
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1, 1},
                                               {4, 3},
                                               {2, 5, 3, 3},
                                               {3, 7, 5, 17},
                                               {2, 9, 9, 16},
                                               {5, 20},
                                               {1, 24},
                                               {1031, 8},
                                               {4, 40, 41, 16},
                                               {2, 3, 5, 700}}) {
    CAPTURE(shape);
    for (const After after : kAll) testing::CheckForward(TrainingCase(shape, after, true));
  }
}

TEST_CASE("Gradients of x, gamma, beta and what is added") {
  for (const Shape& shape : std::vector<Shape>{{6, 2}, {2, 3, 2, 3}, {1, 2, 3, 17}, {3, 4, 16}}) {
    CAPTURE(shape);
    for (const After after : kAll) testing::CheckGradients(TrainingCase(shape, after, false));
  }
}

TEST_CASE("Inference takes the mean and variance that it is given") {
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1, 1}, {3, 7, 5, 17}, {2, 9, 9, 16}, {2, 3, 5, 700}}) {
    CAPTURE(shape);
    for (const After after : kAll) testing::CheckForward(InferenceCase(shape, after));
  }
}

TEST_CASE("Blocked images give the same") {
  for (const After after : kAll) {
    testing::CheckForward(TrainingCase({3, 7, 5, 32}, after, true, true));
    testing::CheckForward(InferenceCase({3, 7, 5, 32}, after, true));
  }
  testing::CheckGradients(TrainingCase({2, 2, 1, 16}, After::kNothing, false, true));
  testing::CheckGradients(TrainingCase({2, 2, 1, 16}, After::kRelu, false, true));
}

TEST_CASE("TensorFlow's moving averages of arange(24)") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  // One training step of batch normalization with momentum 0.997 from moving mean 0 and variance 1 in TensorFlow 1.10.
  std::vector<float> numbers(24);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const std::vector<Tensor> y = testing::RunOn(
      kind, {Tensor::Of<float>({2, 2, 2, 3}, numbers), Tensor::Of<float>({3}, {1, 1, 1}), Tensor(DType::kFloat32, {3})},
      [](absl::Span<const Value> in) {
        const BatchNormResult norm = FusedBatchNorm(in[0], in[1], in[2], 1e-5);
        return std::vector<Value>{norm.mean, norm.variance};
      });
  const Doubles moving_mean = {0.0315, 0.0345, 0.0375};
  for (int c = 0; c < 3; ++c) {
    CHECK(0.003 * y[0].data<float>()[c] == Approx(moving_mean[c]));
    CHECK(0.997 + 0.003 * y[1].data<float>()[c] == Approx(1.159));
  }
}

TEST_CASE("A large mean does not drown the variance") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  const int64_t n = 5000;
  Tensor x = testing::RandomTensor({n, 4}, 7);
  double exact = 0;
  for (int64_t i = 0; i < x.num_elements(); ++i) x.data<float>()[i] += 1000;
  double mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += x.data<float>()[i * 4] / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) exact += std::pow(x.data<float>()[i * 4] - mean, 2) / static_cast<double>(n - 1);
  const std::vector<Tensor> y = testing::RunOn(
      kind, {x, Tensor::Of<float>({4}, {1, 1, 1, 1}), Tensor(DType::kFloat32, {4})}, [](absl::Span<const Value> in) {
        return std::vector<Value>{FusedBatchNorm(in[0], in[1], in[2], kEpsilon).variance};
      });
  CHECK(y[0].data<float>()[0] == Approx(exact).epsilon(1e-5));
}

TEST_CASE("An empty batch has mean and variance zero") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  const std::vector<Tensor> y = testing::RunOn(
      kind, {Tensor(DType::kFloat32, {0, 2, 2, 3}), Tensor::Of<float>({3}, {1, 1, 1}), Tensor(DType::kFloat32, {3})},
      [](absl::Span<const Value> in) {
        const BatchNormResult norm = FusedBatchNorm(in[0], in[1], in[2], kEpsilon);
        return std::vector<Value>{norm.mean, norm.variance};
      });
  for (const Tensor& statistic : y) CHECK(testing::ToDoubles(statistic) == Doubles(3, 0.0));
}

TEST_CASE("Add and ReLU vanish into the normalization, whose statistics stay") {
  const std::vector<TensorType> types = {{DType::kFloat32, {2, 3, 3, 16}},
                                         {DType::kFloat32, {16}},
                                         {DType::kFloat32, {16}},
                                         {DType::kFloat32, {2, 3, 3, 16}}};
  for (const After after : {After::kRelu, After::kAdd, After::kAddRelu}) {
    const std::vector<TensorType> given(types.begin(), types.begin() + (after == After::kRelu ? 3 : 4));
    CHECK(testing::CompiledOps(given, TrainingCase({2, 3, 3, 16}, after, true).build) == Ops{op::FusedBatchNorm});
    CHECK(testing::CompiledOps(given, InferenceCase({2, 3, 3, 16}, after).build) == Ops{op::FusedBatchNormInference});
  }
  // What others read too is computed as it is.
  const Ops shared = testing::CompiledOps(types, [](absl::Span<const Value> in) {
    const Value y = FusedBatchNorm(in[0], in[1], in[2], kEpsilon).y;
    return std::vector<Value>{y, Relu(y)};
  });
  CHECK(shared == Ops{op::FusedBatchNorm, op::Relu});
}

TEST_CASE("The gradient of a ReLU after the normalization is part of the normalization's") {
  const Shape shape{2, 3, 3, 16};
  const testing::OpCase test = TrainingCase(shape, After::kRelu, false);
  std::vector<TensorType> types;
  for (const Tensor& t : test.inputs) types.push_back(t.type());
  const Ops ops = testing::CompiledOps(types, [&](absl::Span<const Value> in) {
    const std::vector<Value> y = test.build(in), seeds = {in[0]};
    return Gradients(y, seeds, in);
  });
  CHECK(ops == Ops{op::FusedBatchNorm, op::FusedBatchNormGrad});
}

// y = Relu(normalized x) + x, or without the ReLU.
testing::OpCase ResidualCase(const Shape& shape, After after) {
  testing::OpCase test = TrainingCase(shape, after, false);
  test.build = [build = test.build](absl::Span<const Value> in) {
    return std::vector<Value>{Add(in[0], build(in)[0])};
  };
  test.reference = [reference = test.reference](const std::vector<Doubles>& in) {
    std::vector<Doubles> y = reference(in);
    for (size_t i = 0; i < y[0].size(); ++i) y[0][i] += in[0][i];
    return y;
  };
  return test;
}

TEST_CASE("What others give to the gradient of x is added by the normalization's") {
  for (const After after : {After::kNothing, After::kRelu}) {
    for (const Shape& shape : std::vector<Shape>{{2, 3, 2, 3}, {1, 2, 3, 17}}) {
      testing::CheckGradients(ResidualCase(shape, after));
    }
    const testing::OpCase test = ResidualCase({2, 3, 3, 16}, after);
    std::vector<TensorType> types;
    for (const Tensor& t : test.inputs) types.push_back(t.type());
    const Ops ops = testing::CompiledOps(types, [&](absl::Span<const Value> in) {
      const std::vector<Value> y = test.build(in), seeds = {in[0]};
      return Gradients(y, seeds, in);
    });
    CHECK(ops == Ops{op::FusedBatchNorm, op::FusedBatchNormGrad});
  }
}

// The gradients of x, gamma and beta of ResidualCase in closed form; in[3] is the gradient of y.
std::vector<Doubles> ResidualGradients(const std::vector<Doubles>& in, After after) {
  const Doubles &x = in[0], &gamma = in[1], &dy = in[3];
  const Normalized norm = Normalize(x, gamma, in[2]);
  const size_t channels = gamma.size();
  const double n = static_cast<double>(x.size() / channels);
  const auto scale = [&](size_t c) { return 1 / std::sqrt(norm.variance[c] * (n - 1) / n + kEpsilon); };
  const auto normalized = [&](size_t i) { return (x[i] - norm.mean[i % channels]) * scale(i % channels); };
  const auto passed = [&](size_t i) { return after == After::kRelu && norm.y[i] <= 0 ? 0.0 : dy[i]; };
  Doubles dx = dy, d_gamma(channels), d_beta(channels);
  for (size_t i = 0; i < x.size(); ++i) {
    d_gamma[i % channels] += passed(i) * normalized(i);
    d_beta[i % channels] += passed(i);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    dx[i] += gamma[c] * scale(c) * (passed(i) - d_beta[c] / n - normalized(i) * d_gamma[c] / n);
  }
  return {dx, d_gamma, d_beta};
}

TEST_CASE("Gradients of many rows are those of the closed form") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16, DType::kFloat16);
  for (const Shape& shape : std::vector<Shape>{{1100, 8}, {333, 72}, {1100, 7}}) {
    for (const After after : {After::kNothing, After::kRelu}) {
      CAPTURE(kind, dtype, shape);
      testing::OpCase test = ResidualCase(shape, after);
      test.inputs.push_back(testing::RandomTensor(shape, 5));
      std::vector<Tensor> inputs;
      std::vector<Doubles> exact;
      for (const Tensor& input : test.inputs) {
        inputs.push_back(input.CastTo(dtype));
        exact.push_back(testing::ToDoubles(inputs.back()));
      }
      const std::vector<Tensor> got = testing::RunOn(kind, inputs, [&](absl::Span<const Value> in) {
        const std::vector<Value> y = test.build(in.subspan(0, 3)), seeds = {in[3]};
        return Gradients(y, seeds, in.subspan(0, 3));
      });
      const std::vector<Doubles> want = ResidualGradients(exact, after);
      for (size_t k = 0; k < want.size(); ++k) {
        const Doubles gradient = testing::ToDoubles(got[k]);
        REQUIRE(gradient.size() == want[k].size());
        double largest = 0, difference = 0;
        for (size_t i = 0; i < gradient.size(); ++i) {
          largest = std::max(largest, std::abs(want[k][i]));
          difference = std::max(difference, std::abs(gradient[i] - want[k][i]));
        }
        CHECK(difference <= (dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat16 ? 1e-3 : 8e-3) * largest);
      }
    }
  }
}

// Two convolutions of the same normalized images: the gradients of images, scale, offset and both filters.
std::vector<Value> ConvolutionGradients(absl::Span<const Value> in, bool relu, bool fetch_normalized) {
  const Value norm = FusedBatchNorm(Blocked(in[0]), Float(in[1]), Float(in[2]), kEpsilon).y;
  const Value normalized = relu ? Relu(norm) : norm;
  const Value y = Add(Conv2D(normalized, in[3]), Conv2D(normalized, in[4]));
  const Value seeds[] = {in[5]};
  std::vector<Value> fetches = Gradients({y}, seeds, in.subspan(0, 5));
  if (fetch_normalized) fetches.push_back(normalized);
  return fetches;
}

TEST_CASE("Gradients of filters normalize again, with the same bits") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16, DType::kFloat16);
  const bool relu = GENERATE(false, true);
  CAPTURE(dtype, relu);
  std::vector<Tensor> inputs = Inputs({3, 9, 7, 32}, After::kNothing);
  inputs.push_back(testing::RandomTensor({3, 3, 32, 16}, 8));
  inputs.push_back(testing::RandomTensor({1, 1, 32, 16}, 9));
  inputs.push_back(testing::RandomTensor({3, 9, 7, 16}, 10));
  std::vector<TensorType> types;
  for (Tensor& input : inputs) {
    input = input.CastTo(dtype);
    types.push_back(input.type());
  }
  const auto count_again = [&](bool fetch_normalized) {
    const Ops ops = testing::CompiledOps(
        types, [&](absl::Span<const Value> in) { return ConvolutionGradients(in, relu, fetch_normalized); });
    return std::count(ops.begin(), ops.end(), op::FusedBatchNormAgain);
  };
  CHECK(count_again(false) == 1);
  CHECK(count_again(true) == 0);
  const auto run = [&](bool fetch_normalized) {
    return testing::RunOnCpu(
        inputs, [&](absl::Span<const Value> in) { return ConvolutionGradients(in, relu, fetch_normalized); });
  };
  const std::vector<Tensor> again = run(false), kept = run(true);
  for (int i = 0; i < 5; ++i) CHECK(testing::ToDoubles(again[i]) == testing::ToDoubles(kept[i]));
}

TEST_CASE("Inputs that do not fit say so") {
  const auto error = [](TensorType x, TensorType gamma) {
    return std::string(testing::BuildStatus({x, gamma}, [](absl::Span<const Value> in) {
                         return std::vector<Value>{FusedBatchNorm(in[0], in[1], in[1], kEpsilon).y};
                       }).message());
  };
  CHECK_THAT(error({DType::kFloat32, {2, 3}}, {DType::kFloat32, {4}}),
             Catch::Contains("FusedBatchNorm: input 1 must be float32[3]"));
  CHECK_THAT(error({DType::kBFloat16, {2, 3}}, {DType::kBFloat16, {3}}), Catch::Contains("must be float32[3]"));
  CHECK_THAT(error({DType::kFloat32, {3}}, {DType::kFloat32, {3}}), Catch::Contains("rank 2 or more"));
  const TensorType scalar{DType::kFloat32, {}};
  CHECK_THAT(std::string(testing::BuildStatus({scalar},
                                              [](absl::Span<const Value> in) {
                                                return std::vector<Value>{
                                                    SyncBatchNorm(in[0], in[0], in[0], in[0], kEpsilon).y};
                                              })
                             .message()),
             Catch::Contains("SyncBatchNorm: needs x [..., C] of rank 2 or more, got float32[]"));
}

}  // namespace
}  // namespace official::compute
