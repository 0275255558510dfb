#include <catch2/catch.hpp>
#include <tuple>

#include "official/recommendation/neumf_model.h"
#include "official/recommendation/random_ratings.h"
#include "utils/compute/core/dtype.h"
#include "utils/data/batch.h"
#include "utils/train/emulated_training.h"

namespace official::recommendation {
namespace {

using compute::DType;

constexpr int64_t kBatch = 64, kSteps = 5;

TEST_CASE("NCF trains on a GPU as on the CPU") {
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-6, 1e-5}, std::tuple{DType::kBFloat16, 1e-4, 0.2},
               std::tuple{DType::kFloat16, 1e-6, 3e-4});
  const data::DatasetPtr ratings = RandomRatings(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(ratings, {.batch_size = kBatch, .start = start});
  };
  const train::TrainingDifference difference =
      train::TrainOnEmulatedGpu(NeuMfModel({.num_users = kRandomUsers, .num_items = kRandomItems}), input, dtype);
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

}  // namespace
}  // namespace official::recommendation
