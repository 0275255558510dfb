#include <catch2/catch.hpp>
#include <tuple>

#include "official/resnet/small_training.h"
#include "utils/compute/core/dtype.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/train/emulated_training.h"

namespace official::resnet {
namespace {

using compute::DType;

constexpr int64_t kBatch = 2, kSteps = 5;

TEST_CASE("ResNet-8 trains on a GPU as on the CPU") {
  const int version = GENERATE(1, 2);
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-6, 1e-5}, std::tuple{DType::kBFloat16, 3e-3, 0.4});
  CAPTURE(version);
  const train::Model model = SmallModel(version, kBatch * kSteps, kBatch);
  const auto train_on = [&](const data::DatasetPtr& images) {
    const auto input = [&](data::Position start) {
      return data::Batches(images, {.batch_size = kBatch, .start = start});
    };
    return train::TrainOnEmulatedGpu(model, input, dtype);
  };
  train::TrainingDifference difference = train_on(BrightImages(kBatch * kSteps, /*seed=*/4));
  // An activation that rounding alone makes positive or not changes all that follows: in one of ten such trainings, not
  // in two.
  if (difference.tensors > most_tensors) difference = train_on(BrightImages(kBatch * kSteps, /*seed=*/5));
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

}  // namespace
}  // namespace official::resnet
