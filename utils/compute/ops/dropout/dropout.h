// Dropout, with random numbers that depend on the example and not on the device that computes it.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName Dropout("Dropout");
inline constexpr OpName PackedDropout("PackedDropout");

}  // namespace official::compute::op

// The inputs and the output of Dropout.
namespace official::compute::dropout {
enum Input : int { kX, kRandomState };
enum Output : int { kY };
}  // namespace official::compute::dropout

// The inputs and the output of PackedDropout.
namespace official::compute::packed_dropout {
enum Input : int { kX, kOffsets, kRandomState };
enum Output : int { kY };
}  // namespace official::compute::packed_dropout

namespace official::compute {

// The state that random ops read, fed at every step: int64 [3] = {seed, step, index in the global batch of the first
// example that this replica holds}.
Value RandomState(Graph& graph);

// x * mask / (1 - rate), where the mask is 1 with probability 1 - rate: tf.nn.dropout. The first dimension of x is the
// batch. Whether element i of example e is kept is a function of (seed, step, `name`, e, i) only, so N replicas and a
// resumed run draw what one uninterrupted device draws. The backward pass draws the mask again instead of keeping it.
// The rate is in [0, 1); 0 gives x itself.
Value Dropout(Value x, double rate, Value random_state, absl::string_view name);

// The same for packed sequences: x [T, C], whose rows are tokens, one sequence after the other; offsets int32 [B + 1],
// ascending from 0: sequence b has rows [offsets[b], offsets[b + 1]). Here the sequences are the examples of the random
// state: whether an element is kept is a function of (seed, step, `name`, sequence in the global batch, position in the
// sequence, column) only. Rows from offsets[B] on are padding: not read, and 0 in the result. The rate is in [0, 1); 0
// only clears the padding. Running fails with InvalidArgument if offsets do not ascend from 0 or go beyond T.
Value PackedDropout(Value x, Value offsets, double rate, Value random_state, absl::string_view name);

// The value of the attribute "stream" of ops whose random numbers have this name.
int64_t DropoutStream(absl::string_view name);

}  // namespace official::compute
