#include <catch2/catch.hpp>
#include <tuple>

#include "official/recommendation/neumf_model.h"
#include "official/recommendation/random_ratings.h"
#include "utils/compute/core/dtype.h"
#include "utils/train/pjrt_training.h"

namespace official::recommendation {
namespace {

using compute::DType;

constexpr int64_t kBatch = 64, kSteps = 20;

train::CpuAndPjrt Both(const train::EstimatorConfig& config = train::TestConfig(), int64_t num_steps = kSteps,
                       int num_replicas = 1) {
  return {NeuMfModel({.num_users = kRandomUsers, .num_items = kRandomItems}),
          [=](int seed) { return RandomRatings(kBatch * num_steps, seed); }, kBatch, config, num_replicas};
}

TEST_CASE("NCF trains, evaluates and predicts on the device of a PJRT plugin as on the CPU") {
  train::CpuAndPjrt both = Both();
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5});
  CHECK(both.cpu().losses.back() < both.cpu().losses.front());
  CHECK(both.EvaluationDifference(RandomCandidates()) <= 1e-5);
  CHECK(both.PredictionDifference(both.examples()) <= 1e-5);
}

TEST_CASE("NCF trains on four devices of a PJRT plugin as on four of the CPU") {
  train::CpuAndPjrt both = Both(train::TestConfig(), /*num_steps=*/5, /*num_replicas=*/4);
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5});
  CHECK(both.EvaluationDifference(RandomCandidates()) <= 1e-5);
}

TEST_CASE("NCF trains in 16 bits on the device of a PJRT plugin as on the CPU") {
  const auto [dtype, most_tensors] = GENERATE(std::tuple{DType::kBFloat16, 0.2}, std::tuple{DType::kFloat16, 0.1});
  CAPTURE(dtype);
  train::CpuAndPjrt both = Both(train::TestConfig(dtype));
  both.Train({.loss = 1e-4, .tensors = most_tensors});
}

TEST_CASE("NCF trains on the device of a PJRT plugin with clipped gradients and averages") {
  train::EstimatorConfig config = train::TestConfig();
  config.clip_norm = 0.01;
  config.ema_decay = 0.9;
  train::CpuAndPjrt both = Both(config);
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5});
  CHECK(both.EvaluationDifference(RandomCandidates()) <= 1e-5);
}

}  // namespace
}  // namespace official::recommendation
