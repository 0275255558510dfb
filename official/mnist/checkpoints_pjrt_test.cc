#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "official/mnist/column_digits.h"
#include "official/mnist/mnist_model.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/data/batch.h"
#include "utils/train/training_difference.h"

namespace official::mnist {
namespace {

using train::RecordedTraining;

constexpr int64_t kBatch = 8, kSteps = 6;

// Trains half of the steps on devices of one kind, and from its checkpoint the others on those of another.
RecordedTraining TrainOnOneAfterTheOther(const std::string& first, const std::string& second, int num_replicas,
                                         const train::InputFn& input) {
  const train::Model model = MnistModel({});
  const std::string model_dir = train::NewModelDir(model);
  std::vector<double> losses;
  absl::Status status;
  for (const auto& [kind, last_step] : {std::pair{first, kSteps / 2}, std::pair{second, kSteps}}) {
    status.Update(train::Train({.device_kind = kind, .num_replicas = num_replicas, .num_threads = 1}, model_dir, model,
                               input, train::TestConfig(), static_cast<int>(last_step), losses));
  }
  return train::Recorded(status, std::move(losses), model_dir);
}

// Trains on the plugin's devices what others have begun, and the other way round. Compares with the CPU alone.
void CheckThatEitherContinues(const std::string& other, int num_replicas) {
  const data::DatasetPtr digits = ColumnDigits(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(digits, {.batch_size = kBatch, .start = start});
  };
  const RecordedTraining cpu =
      train::TrainOn("cpu", num_replicas, MnistModel({}), input, train::TestConfig(), static_cast<int>(kSteps));
  const std::pair<std::string, std::string> orders[] = {{other, compute::kPjrtKind}, {compute::kPjrtKind, other}};
  for (const auto& [first, second] : orders) {
    CAPTURE(first, second);
    const RecordedTraining mixed = TrainOnOneAfterTheOther(first, second, num_replicas, input);
    const train::TrainingDifference difference = train::DifferenceOf(cpu, mixed);
    CAPTURE(difference.worst_tensor, difference.worst_of_norm);
    CHECK(difference.loss <= 1e-5);
    CHECK(difference.of_norm <= 1e-5);
  }
}

TEST_CASE("A GPU continues from the checkpoint of a PJRT plugin's device, and the plugin's from that of a GPU") {
  const int64_t threads_before = compute::cuda_emulation::NumThreadsRun();
  CheckThatEitherContinues(compute::kCudaKind, /*num_replicas=*/1);
  CHECK(compute::cuda_emulation::NumThreadsRun() > threads_before);
}

TEST_CASE("Four devices of the CPU continue from the checkpoint of a PJRT plugin's four, and the other way round") {
  CheckThatEitherContinues("cpu", /*num_replicas=*/4);
}

}  // namespace
}  // namespace official::mnist
