#include <catch2/catch.hpp>

#include "official/resnet/small_training.h"
#include "utils/compute/core/dtype.h"
#include "utils/train/pjrt_training.h"

namespace official::resnet {
namespace {

using compute::DType;

constexpr int64_t kBatch = 2, kSteps = 20;

train::CpuAndPjrt Both(int version, int64_t num_steps, const train::EstimatorConfig& config) {
  const int64_t num_images = kBatch * num_steps;
  return {SmallModel(version, num_images, kBatch), [=](int seed) { return BrightImages(num_images, seed); }, kBatch,
          config};
}

TEST_CASE("ResNet-8 trains, evaluates and predicts on the device of a PJRT plugin as on the CPU") {
  const int version = GENERATE(1, 2);
  CAPTURE(version);
  train::CpuAndPjrt both = Both(version, kSteps, train::TestConfig());
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5}, train::CpuAndPjrt::Flips::kMayHappen);
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-5);
  CHECK(both.PredictionDifference(both.examples()) <= 1e-5);
}

TEST_CASE("ResNet-8 trains on four devices of a PJRT plugin as on four of the CPU") {
  constexpr int kReplicas = 4;
  constexpr int64_t kGlobalBatch = kReplicas * kBatch, kNumImages = kGlobalBatch * 4;
  const bool sync_batch_norm = GENERATE(false, true);
  CAPTURE(sync_batch_norm);
  train::CpuAndPjrt both(
      SmallModel(/*version=*/1, kNumImages, kGlobalBatch, sync_batch_norm),
      [](int seed) { return BrightImages(kNumImages, seed); }, kGlobalBatch, train::TestConfig(), kReplicas);
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5}, train::CpuAndPjrt::Flips::kMayHappen);
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-5);
}

TEST_CASE("ResNet-8 trains in bfloat16 on the device of a PJRT plugin as on the CPU") {
  const int version = GENERATE(1, 2);
  CAPTURE(version);
  train::CpuAndPjrt both = Both(version, /*num_steps=*/5, train::TestConfig(DType::kBFloat16));
  both.Train({.loss = 1e-2, .tensors = 0.5}, train::CpuAndPjrt::Flips::kMayHappen);
}

}  // namespace
}  // namespace official::resnet
