// Batches of sentence pairs as the model takes them: their tokens packed one after another, so that no time goes into
// padding between them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/train/model.h"

namespace official::transformer {

struct PackedIds {
  compute::Tensor ids, offsets;
};

struct PackedSize {
  int64_t sentences = 1, tokens = 0;
};

// Packs sentences into ids int32 [T], padded with 0 to one of few lengths, so that there are few programs, and offsets
// int32 [B + 1]: sentence b has ids [offsets[b], offsets[b + 1]). Empty sentences make B a power of two. There is room
// for `least`.
PackedIds PackIds(const std::vector<absl::Span<const int32_t>>& sentences, const PackedSize& least = {});

// Returns a share of a batch, its sentences packed.
//
//   features  inputs [T], input_offsets [B + 1]
//   labels    targets [U], target_offsets [B + 1]
//
// In an evaluation each sentence keeps the padding of its targets, up to the longest of the batch, since upstream's
// metrics include the predictions there. The weight is the number of targets that are not padding. `parts_alike`: see
// train::ShareFn.
//
// `batch` comes from TranslationBatches: inputs [N, S], their lengths [N], targets [N, T], their lengths [N].
train::BatchShare PackedShare(train::Mode mode, const data::Batch& batch, const compute::Share& examples,
                              int parts_alike = 0);

// Returns the smallest padded length that holds `tokens` ids.
int64_t PaddedRows(int64_t tokens);

}  // namespace official::transformer
