#include <catch2/catch.hpp>
#include <tuple>

#include "official/recommendation/neumf_model.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/train/emulated_training.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kBatch = 64, kSteps = 5;
constexpr int kUsers = 30, kItems = 50;

// Random pairs, every fifth of which is one that the user has chosen.
data::DatasetPtr Ratings(int64_t n) {
  Tensor users(DType::kInt32, {n}), items(DType::kInt32, {n}), labels(DType::kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) {
    users.data<int32_t>()[i] = static_cast<int32_t>(compute::Philox(8, i, 0)[0] % kUsers);
    items.data<int32_t>()[i] = static_cast<int32_t>(compute::Philox(8, i, 1)[0] % kItems);
    labels.data<float>()[i] = i % 5 == 0 ? 1.0f : 0.0f;
  }
  return data::TensorSlices({{"user_id", users}, {"item_id", items}}, {{"", labels}});
}

TEST_CASE("NCF trains on a GPU as on the CPU") {
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-6, 1e-5}, std::tuple{DType::kBFloat16, 1e-4, 0.2},
               std::tuple{DType::kFloat16, 1e-6, 3e-4});
  const data::DatasetPtr ratings = Ratings(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(ratings, {.batch_size = kBatch, .start = start});
  };
  const train::TrainingDifference difference =
      train::TrainOnEmulatedGpu(NeuMfModel({.num_users = kUsers, .num_items = kItems}), input, dtype);
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

}  // namespace
}  // namespace official::recommendation
