#include <catch2/catch.hpp>

#include "official/transformer/model_params.h"
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
  // XLA's largest distance is 9.4e-6 of a norm, that of the bias of the layer norm in front of the decoder's first
  // attention to the encoder. The CPU's kernels move the same bias most, by 3e-6, if they take each batch in two parts:
  // Adam divides a gradient by its size, and where it is nearly 0 that leaves the rounding of its sums.
  both.Train({.loss = 1e-5, .tensors = 1e-4, .of_norm = 1e-4});
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-5);
}

TEST_CASE("The tiny Transformer trains on four devices of a PJRT plugin as on four of the CPU") {
  constexpr int64_t kFewSteps = 3;
  ModelParams params = TinyParams(/*warmup_steps=*/kSteps);
  params.num_hidden_layers = 1;  // XLA takes minutes to compile a step of more
  train::CpuAndPjrt both(
      TransformerModel(params), [](int seed) { return RandomPairs(kBatch * kFewSteps, seed); }, kBatch,
      train::TestConfig(), /*num_replicas=*/4);
  both.Train({.loss = 1e-5, .tensors = 1e-5, .of_norm = 1e-5});
  CHECK(both.EvaluationDifference(both.examples()) <= 1e-5);
}

TEST_CASE("Devices of a PJRT plugin train the Transformer on shares of different sizes") {
  // Two sentences or one on each of four devices, and one or none.
  const int64_t batch = GENERATE(6, 3);
  constexpr int kLongest = 40;
  CAPTURE(batch);
  ModelParams params = TinyParams(/*warmup_steps=*/kSteps);
  params.num_hidden_layers = 1;
  train::CpuAndPjrt both(
      TransformerModel(params), [batch](int seed) { return RandomPairs(2 * batch, seed, kLongest); }, batch,
      train::TestConfig(), /*num_replicas=*/4);
  both.Train({.loss = 1e-5, .tensors = 1e-4, .of_norm = 1e-4});
}

}  // namespace
}  // namespace official::transformer
