#include "official/transformer/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "utils/compute/core/batch_parts.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;

// Returns what each of `parts` parts of n sentences fits into.
PackedSize SizeOfParts(const int32_t* lengths, int64_t n, int parts) {
  PackedSize size;
  for (int p = 0; p < parts; ++p) {
    const compute::Share rows = compute::ShareOf(n, p, parts);
    size.sentences = std::max(size.sentences, rows.size());
    size.tokens = std::max(size.tokens, std::accumulate(lengths + rows.begin, lengths + rows.end, int64_t{0}));
  }
  return size;
}

// Rows [begin, end) of ids [N, L], of each the first lengths[i].
PackedIds Pack(const Tensor& ids, const int32_t* lengths, const compute::Share& rows, int parts_alike) {
  const int64_t length = ids.type().shape.dim(1);
  std::vector<absl::Span<const int32_t>> sentences;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    sentences.emplace_back(ids.data<int32_t>() + i * length, lengths[i]);
  }
  return PackIds(sentences, SizeOfParts(lengths, ids.type().shape.dim(0), parts_alike));
}

}  // namespace

PackedIds PackIds(const std::vector<absl::Span<const int32_t>>& sentences, const PackedSize& least) {
  const auto num_least = static_cast<size_t>(least.sentences);
  const auto padded = static_cast<int64_t>(std::bit_ceil(std::max(num_least, sentences.size())));
  Tensor offsets(DType::kInt32, {padded + 1});
  int32_t* const offset = offsets.data<int32_t>();
  for (int64_t b = 0; b < padded; ++b) {
    const bool is_padding = b >= static_cast<int64_t>(sentences.size());
    offset[b + 1] = offset[b] + (is_padding ? 0 : static_cast<int32_t>(sentences[b].size()));
  }
  Tensor ids(DType::kInt32, {PaddedRows(std::max<int64_t>(offset[padded], least.tokens))});
  for (size_t b = 0; b < sentences.size(); ++b) {
    std::copy(sentences[b].begin(), sentences[b].end(), ids.data<int32_t>() + offset[b]);
  }
  return {std::move(ids), std::move(offsets)};
}

int64_t PaddedRows(int64_t tokens) {
  // At most a sixteenth of a row is padding, but 64 rows, which kernels work on together, are the least step.
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, tokens))) / 16);
  const int64_t multiple = std::max<int64_t>(64, step);
  return std::max<int64_t>(1, (tokens + multiple - 1) / multiple) * multiple;
}

train::BatchShare PackedShare(train::Mode mode, const data::Batch& batch, const compute::Share& examples,
                              int parts_alike) {
  const Tensor& targets = batch.labels[0];
  const int32_t* const target_lengths = batch.labels[1].data<int32_t>();
  int64_t weight = 0;
  for (int64_t i = examples.begin; i < examples.end; ++i) weight += target_lengths[i];
  PackedIds inputs = Pack(batch.features[0], batch.features[1].data<int32_t>(), examples, parts_alike);
  const std::vector<int32_t> whole(mode == train::Mode::kEval ? batch.num_examples : 0,
                                   static_cast<int32_t>(targets.type().shape.dim(1)));
  PackedIds packed = Pack(targets, mode == train::Mode::kEval ? whole.data() : target_lengths, examples, parts_alike);
  return {.examples = examples,
          .features = {std::move(inputs.ids), std::move(inputs.offsets)},
          .labels = {std::move(packed.ids), std::move(packed.offsets)},
          .weight = weight};
}

}  // namespace official::transformer
