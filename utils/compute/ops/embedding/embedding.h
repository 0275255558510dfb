// The embedding of the official transformer: a lookup in a table, scaled, plus the signal of the position.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName Embedding("Embedding");
inline constexpr OpName EmbeddingGrad("EmbeddingGrad");

}  // namespace official::compute::op

// The inputs and the output of Embedding.
namespace official::compute::embedding {
enum Input : int { kTable, kIds, kPositions, kOffsets, kRandomState };
enum Output : int { kY };
}  // namespace official::compute::embedding

// The inputs and outputs of EmbeddingGrad. The outputs are an IndexedSlices, a row for each token; where no gradient
// flows, it has zeros for index 0.
namespace official::compute::embedding_grad {
enum Input : int { kDy, kIds, kOffsets, kRandomState };
enum Output : int {
  kRows,     // [T, H] of the type of dy
  kIndices,  // int32 [T]
};
}  // namespace official::compute::embedding_grad

namespace official::compute {

// float32 [length, size]: sin(p * f[i]) and, after all of those, cos(p * f[i]) at position p, with size / 2 frequencies
// f from 1 down to 1 / 10000, in geometric progression. size is even and at least 4. Source: get_position_encoding in
// tensorflow/models official/transformer/model/model_utils.py, whose arithmetic in float32 is followed.
Tensor PositionSignal(int64_t length, int64_t size);

struct EmbeddingInputs {
  Value table;      // [V, H] float32, bfloat16 or half
  Value ids;        // int32 [T], the tokens of packed sequences, in [0, V)
  Value positions;  // float32 [L, H], such as PositionSignal; L is at least the longest sequence
  // int32 [B + 1], ascending from 0: sequence b has rows [offsets[b], offsets[b + 1]). Rows from offsets[B] on are
  // padding: not read, and zero in the result and in the gradients.
  Value offsets;
  // RandomState of dropout.h, with sequences as the examples. Needed for a dropout rate above 0 only.
  Value random_state = {};
};

struct EmbeddingParams {
  double scale = 1;          // factor of the table's rows; the official transformer's is sqrt(H)
  bool shift_right = false;  // a token gets the id of the one before it; the first of a sequence gets id 0
  double dropout_rate = 0;
  absl::string_view name = "";  // the name of the dropout's random numbers
};

// PackedDropout(scale * table[id] + positions[position in its sequence]) of each token -> [T, H] of the table's type.
// Id 0 gives a row of zeros, not the table's. The gradient of the table is an IndexedSlices; added to a dense gradient,
// such as that of a product with the same table, it is added in place (AddRows of array.h).
// Running fails with InvalidArgument if an id is outside [0, V), a sequence is longer than L, or offsets do not ascend
// from 0 or go beyond T.
Value Embedding(const EmbeddingInputs& inputs, const EmbeddingParams& params);

}  // namespace official::compute
