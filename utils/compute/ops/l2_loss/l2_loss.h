// Half the sum of squares: weight decay as a term of the loss.
#pragma once

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName L2Loss("L2Loss");

}  // namespace official::compute::op

namespace official::compute {

// The sum over all `values`, float32 of any shapes, of half the squares of their elements: a float32 scalar. It is made
// in more precision than float32, in an order that depends on the shapes only. This is the sum of tf.nn.l2_loss of
// each.
Value L2Loss(absl::Span<const Value> values);

}  // namespace official::compute
