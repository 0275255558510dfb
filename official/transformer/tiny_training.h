// For tests: the tiny Transformer and pairs of sentences to train it with.
#pragma once

#include <cstdint>

#include "official/transformer/model_params.h"
#include "utils/data/dataset.h"

namespace official::transformer {

// n pairs of sentences of 3 to `max_length` random ids, the last of which is EOS, padded; and their lengths.
data::DatasetPtr RandomPairs(int64_t n, int seed = 11, int max_length = 9);
// The parameters "tiny" with a vocabulary for these pairs and so many steps of warm-up: with more, few steps would
// change next to nothing.
ModelParams TinyParams(int64_t warmup_steps);

}  // namespace official::transformer
