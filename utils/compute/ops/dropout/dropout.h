// Dropout, with random numbers that depend on the example and not on who computes it.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// The state that random ops read, fed at every step: int64 [3] = {seed, step, index in the global batch of the first
// example that this replica holds}.
Value RandomState(Graph& graph);

// x * mask / (1 - rate), mask 1 with probability 1 - rate: tf.nn.dropout. The first dimension of x is the batch.
// Whether element i of example e is kept is a function of (seed, step, `name`, e, i) only, so N replicas and a resumed
// run draw what one uninterrupted device draws. The backward pass draws the mask again instead of keeping it. rate in
// [0, 1); 0 is x itself.
Value Dropout(Value x, double rate, Value random_state, absl::string_view name);

}  // namespace official::compute
