#include <catch2/catch.hpp>

#include "official/transformer/tiny_training.h"
#include "official/transformer/transformer_model.h"
#include "utils/train/pjrt_training.h"

namespace official::transformer {
namespace {

constexpr int64_t kBatch = 8, kSteps = 20;

TEST_CASE("The tiny Transformer trains and evaluates on the device of a PJRT plugin as on the CPU") {
  train::CpuAndPjrt both(
      TransformerModel(TinyParams(/*warmup_steps=*/kSteps)),
      [](int seed) { return RandomPairs(kBatch * kSteps, seed); }, kBatch);
  both.Train(/*most_loss=*/1e-5, /*most_tensors=*/1e-3);
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-5);
}

}  // namespace
}  // namespace official::transformer
