#include <catch2/catch.hpp>
#include <tuple>

#include "official/transformer/tiny_training.h"
#include "official/transformer/transformer_model.h"
#include "utils/compute/core/dtype.h"
#include "utils/data/batch.h"
#include "utils/train/emulated_training.h"

namespace official::transformer {
namespace {

using compute::DType;

constexpr int64_t kBatch = 2, kSteps = 5;

TEST_CASE("The tiny Transformer trains on a GPU as on the CPU") {
  // The epsilon of Adam is 1e-9 here: a few weights of units that hardly any token uses have gradients that are not far
  // above rounding errors.
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-6, 5e-4}, std::tuple{DType::kBFloat16, 1e-2, 0.3});
  const train::Model model = TransformerModel(TinyParams(kSteps));
  const data::DatasetPtr pairs = RandomPairs(kBatch * kSteps);
  const auto input = [&](data::Position start) { return data::Batches(pairs, {.batch_size = kBatch, .start = start}); };
  const train::TrainingDifference difference = train::TrainOnEmulatedGpu(model, input, dtype);
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

}  // namespace
}  // namespace official::transformer
