#include "official/transformer/tiny_training.h"

#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int kVocabulary = 500;

// n sentences of 3 to `max_length` ids, the last of which is EOS, padded; and their lengths.
struct Sentences {
  Sentences(int64_t n, uint64_t seed, int max_length)
      : ids(DType::kInt32, {n, max_length}), lengths(DType::kInt32, {n}) {
    for (int64_t i = 0; i < n; ++i) {
      const auto random = [&](int64_t place, int limit) {
        return static_cast<int32_t>(compute::Philox(seed, i, place)[0] % limit);
      };
      const int32_t length = 3 + random(max_length, max_length - 2);
      lengths.data<int32_t>()[i] = length;
      for (int p = 0; p < max_length; ++p) {
        ids.data<int32_t>()[i * max_length + p] = p + 1 > length    ? 0
                                                  : p + 1 == length ? 1
                                                                    : 2 + random(p, kVocabulary - 2);
      }
    }
  }
  Tensor ids, lengths;
};

}  // namespace

data::DatasetPtr RandomPairs(int64_t n, int seed, int max_length) {
  const Sentences sources(n, seed, max_length), targets(n, seed + 1, max_length);
  return data::TensorSlices({{"inputs", sources.ids}, {"input_lengths", sources.lengths}},
                            {{"targets", targets.ids}, {"target_lengths", targets.lengths}});
}

ModelParams TinyParams(int64_t warmup_steps) {
  ModelParams params = ParamsOf("tiny", /*multi_gpu=*/false).value();
  params.vocab_size = kVocabulary;
  params.learning_rate_warmup_steps = warmup_steps;
  return params;
}

}  // namespace official::transformer
