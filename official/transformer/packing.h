// Batches of sentence pairs as the model takes them: their tokens one behind the other, so that no time goes into the
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

// A row of ids int32 [T] is padded with 0 to one of few lengths, so that there are few programs; offsets int32 [B + 1]
// say that sentence b has ids [offsets[b], offsets[b + 1]). Empty sentences make B a power of two.
PackedIds PackIds(const std::vector<absl::Span<const int32_t>>& sentences);

// A share of a batch, its sentences packed.
//
//   features  inputs [T], input_offsets [B + 1]
//   labels    targets [U], target_offsets [B + 1]
//
// In an evaluation each sentence keeps the padding of its targets, up to the longest of the batch, since upstream's
// metrics look at what is predicted there. The weight is the number of targets that are not padding.
//
// `batch` is one of TranslationBatches: inputs [N, S], their lengths [N], targets [N, T], their lengths [N].
train::BatchShare PackedShare(train::Mode mode, const data::Batch& batch, const compute::Share& examples);

// The smallest length of a row that holds `tokens` ids.
int64_t PaddedRows(int64_t tokens);

}  // namespace official::transformer
