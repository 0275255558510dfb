#include <catch2/catch.hpp>
#include <tuple>

#include "official/mnist/column_digits.h"
#include "official/mnist/mnist_model.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/data/batch.h"
#include "utils/train/training_difference.h"

namespace official::mnist {
namespace {

using compute::DType;

constexpr int64_t kBatch = 10, kSteps = 20;

TEST_CASE("mnist trains on the device of a PJRT plugin as on the CPU") {
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-5, 1e-4}, std::tuple{DType::kBFloat16, 1e-3, 0.2},
               std::tuple{DType::kFloat16, 1e-3, 0.1});
  const data::DatasetPtr digits = ColumnDigits(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(digits, {.batch_size = kBatch, .start = start});
  };
  const auto train = [&, dtype = dtype](const char* device_kind) {
    return train::TrainOn(device_kind, /*num_replicas=*/1, MnistModel({}), input, dtype, kSteps);
  };
  const train::RecordedTraining cpu = train("cpu");
  REQUIRE(cpu.losses.size() == kSteps);
  CHECK(cpu.losses.back() < cpu.losses.front());
  const train::TrainingDifference difference = train::DifferenceOf(cpu, train(compute::kPjrtKind));
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

}  // namespace
}  // namespace official::mnist
