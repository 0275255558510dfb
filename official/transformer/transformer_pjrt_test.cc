#include <catch2/catch.hpp>

#include "official/transformer/tiny_training.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/data/batch.h"
#include "utils/train/training_difference.h"

namespace official::transformer {
namespace {

constexpr int64_t kBatch = 8, kSteps = 20;

TEST_CASE("The tiny Transformer trains on the device of a PJRT plugin as on the CPU") {
  const train::Model model = TinyModel(/*warmup_steps=*/kSteps);
  const data::DatasetPtr pairs = RandomPairs(kBatch * kSteps);
  const auto train = [&](const char* device_kind) {
    const auto input = [&](data::Position start) {
      return data::Batches(pairs, {.batch_size = kBatch, .start = start});
    };
    return train::TrainOn(device_kind, /*num_replicas=*/1, model, input, compute::DType::kFloat32, kSteps);
  };
  const train::RecordedTraining cpu = train("cpu");
  REQUIRE(cpu.losses.size() == kSteps);
  const train::TrainingDifference difference = train::DifferenceOf(cpu, train(compute::kPjrtKind));
  CAPTURE(difference.worst_tensor);
  CHECK(difference.loss <= 1e-5);
  CHECK(difference.tensors <= 1e-3);
}

}  // namespace
}  // namespace official::transformer
