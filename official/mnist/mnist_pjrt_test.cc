#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>

#include "official/mnist/column_digits.h"
#include "official/mnist/mnist_model.h"
#include "utils/compute/core/dtype.h"
#include "utils/train/pjrt_training.h"

namespace official::mnist {
namespace {

using compute::DType;

constexpr int64_t kBatch = 10, kSteps = 20;

train::CpuAndPjrt Both(const train::EstimatorConfig& config = train::TestConfig()) {
  return {MnistModel({}), [](int seed) { return ColumnDigits(kBatch * kSteps, seed); }, kBatch, config};
}

TEST_CASE("mnist trains, evaluates and predicts on the device of a PJRT plugin as on the CPU") {
  train::CpuAndPjrt both = Both();
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5});
  CHECK(both.cpu().losses.back() < both.cpu().losses.front());
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-5);
  CHECK(both.PredictionDifference(both.examples()) <= 1e-5);
}

TEST_CASE("mnist trains in 16 bits on the device of a PJRT plugin as on the CPU") {
  const auto [dtype, most_tensors] = GENERATE(std::tuple{DType::kBFloat16, 0.2}, std::tuple{DType::kFloat16, 0.1});
  CAPTURE(dtype);
  train::CpuAndPjrt both = Both(train::TestConfig(dtype));
  both.Train({.loss = 1e-3, .tensors = most_tensors});
}

TEST_CASE("mnist trains on the device of a PJRT plugin with clipped gradients, averages and parts of a batch") {
  train::EstimatorConfig config = train::TestConfig();
  config.clip_norm = 0.5;  // below the norm of all steps
  config.ema_decay = 0.9;
  config.grad_accum_steps = 2;
  train::CpuAndPjrt both = Both(config);
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5});
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-5);
}

TEST_CASE("mnist trains on the device of a PJRT plugin with a dynamic loss scale") {
  train::EstimatorConfig config = train::TestConfig(DType::kFloat16);
  config.loss_scale = {.value = std::ldexp(1.0f, 24), .dynamic = true};  // which overflows in the first steps
  train::CpuAndPjrt both = Both(config);
  both.Train({.loss = 1e-3, .tensors = 0.1});
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-3);
}

}  // namespace
}  // namespace official::mnist
