#include <catch2/catch.hpp>
#include <tuple>

#include "official/mnist/column_digits.h"
#include "official/mnist/mnist_model.h"
#include "utils/compute/core/dtype.h"
#include "utils/data/batch.h"
#include "utils/train/emulated_training.h"

namespace official::mnist {
namespace {

using compute::DType;

constexpr int64_t kBatch = 4, kSteps = 5;

TEST_CASE("mnist trains on a GPU as on the CPU") {
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-6, 1e-5}, std::tuple{DType::kBFloat16, 3e-4, 0.2},
               std::tuple{DType::kFloat16, 3e-5, 0.06});
  const data::DatasetPtr digits = ColumnDigits(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(digits, {.batch_size = kBatch, .start = start});
  };
  const train::TrainingDifference difference = train::TrainOnEmulatedGpu(MnistModel({}), input, dtype);
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

TEST_CASE("mnist trains on two GPUs as on two CPU devices") {
  const data::DatasetPtr digits = ColumnDigits(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(digits, {.batch_size = kBatch, .start = start});
  };
  const train::TrainingDifference difference =
      train::TrainOnEmulatedGpu(MnistModel({}), input, DType::kFloat32, /*num_replicas=*/2);
  CAPTURE(difference.worst_tensor);
  CHECK(difference.loss <= 1e-6);
  CHECK(difference.tensors <= 1e-5);
}

}  // namespace
}  // namespace official::mnist
