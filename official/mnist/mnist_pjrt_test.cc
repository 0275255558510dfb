#include <catch2/catch.hpp>

#include "official/mnist/column_digits.h"
#include "official/mnist/mnist_model.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/data/batch.h"
#include "utils/train/training_difference.h"

namespace official::mnist {
namespace {

constexpr int64_t kBatch = 10, kSteps = 20;

TEST_CASE("mnist trains on the device of a PJRT plugin as on the CPU") {
  const data::DatasetPtr digits = ColumnDigits(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(digits, {.batch_size = kBatch, .start = start});
  };
  const auto train = [&](const char* device_kind) {
    return train::TrainOn(device_kind, /*num_replicas=*/1, MnistModel({}), input, compute::DType::kFloat32, kSteps);
  };
  const train::RecordedTraining cpu = train("cpu");
  REQUIRE(cpu.losses.size() == kSteps);
  CHECK(cpu.losses.back() < cpu.losses.front());
  const train::TrainingDifference difference = train::DifferenceOf(cpu, train(compute::kPjrtKind));
  CAPTURE(difference.worst_tensor);
  CHECK(difference.loss <= 1e-5);
  CHECK(difference.tensors <= 1e-4);
}

}  // namespace
}  // namespace official::mnist
