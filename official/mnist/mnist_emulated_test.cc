#include <catch2/catch.hpp>
#include <tuple>

#include "official/mnist/mnist_model.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/train/emulated_training.h"

namespace official::mnist {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kBatch = 4, kSteps = 5;

// A bright column whose place is the label's, in noise.
data::DatasetPtr Digits(int64_t n) {
  constexpr int64_t kPixels = kImageSize * kImageSize;
  Tensor images(DType::kFloat32, {n, kPixels}), labels(DType::kInt32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = i * 7 % kNumClasses;
    labels.data<int32_t>()[i] = static_cast<int32_t>(label);
    for (int64_t p = 0; p < kPixels; ++p) {
      const float noise = compute::UniformFloat(compute::Philox(5, i, p)[0]) / 4;
      images.data<float>()[i * kPixels + p] = p % kImageSize / 2 == label + 1 ? 1 - noise : noise;
    }
  }
  return data::TensorSlices({{"", images}}, {{"", labels}});
}

TEST_CASE("mnist trains on a GPU as on the CPU") {
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-6, 1e-5}, std::tuple{DType::kBFloat16, 3e-4, 0.2},
               std::tuple{DType::kFloat16, 3e-5, 0.06});
  const data::DatasetPtr digits = Digits(kBatch * kSteps);
  const auto input = [&](data::Position start) {
    return data::Batches(digits, {.batch_size = kBatch, .start = start});
  };
  const train::TrainingDifference difference = train::TrainOnEmulatedGpu(MnistModel({}), input, dtype);
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

TEST_CASE("mnist trains on two GPUs as on two CPU devices") {
  const data::DatasetPtr digits = Digits(kBatch * kSteps);
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
