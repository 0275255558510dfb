#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

#include "official/transformer/model_params.h"
#include "official/transformer/transformer_model.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/train/emulated_training.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kBatch = 2, kSteps = 5, kMaxLength = 9;
constexpr int kVocabulary = 500;

// n sentences of 3 to kMaxLength ids, the last of which is EOS, padded; and their lengths.
struct Sentences {
  explicit Sentences(int64_t n, uint64_t seed) : ids(DType::kInt32, {n, kMaxLength}), lengths(DType::kInt32, {n}) {
    for (int64_t i = 0; i < n; ++i) {
      const auto random = [&](int64_t place, int limit) {
        return static_cast<int32_t>(compute::Philox(seed, i, place)[0] % limit);
      };
      const int32_t length = 3 + random(kMaxLength, kMaxLength - 2);
      lengths.data<int32_t>()[i] = length;
      for (int p = 0; p < kMaxLength; ++p) {
        ids.data<int32_t>()[i * kMaxLength + p] = p + 1 > length    ? 0
                                                  : p + 1 == length ? 1
                                                                    : 2 + random(p, kVocabulary - 2);
      }
    }
  }
  Tensor ids, lengths;
};

TEST_CASE("The tiny Transformer trains on a GPU as on the CPU") {
  // The epsilon of Adam is 1e-9 here: a few weights of units that hardly any token uses have gradients that are not far
  // above rounding errors.
  const auto [dtype, most_loss, most_tensors] =
      GENERATE(std::tuple{DType::kFloat32, 1e-6, 5e-4}, std::tuple{DType::kBFloat16, 1e-2, 0.3});
  ModelParams params = ParamsOf("tiny", /*multi_gpu=*/false).value();
  params.vocab_size = kVocabulary;
  params.learning_rate_warmup_steps = kSteps;  // or nothing would change
  const Sentences sources(kBatch * kSteps, 11), targets(kBatch * kSteps, 12);
  const data::DatasetPtr pairs = data::TensorSlices({{"inputs", sources.ids}, {"input_lengths", sources.lengths}},
                                                    {{"targets", targets.ids}, {"target_lengths", targets.lengths}});
  const auto input = [&](data::Position start) { return data::Batches(pairs, {.batch_size = kBatch, .start = start}); };
  const train::TrainingDifference difference = train::TrainOnEmulatedGpu(TransformerModel(params), input, dtype);
  CAPTURE(dtype, difference.worst_tensor);
  CHECK(difference.loss <= most_loss);
  CHECK(difference.tensors <= most_tensors);
}

}  // namespace
}  // namespace official::transformer
