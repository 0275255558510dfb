// Gradients that are not finite: finding them before an update, and a loss scale that adapts so that they are rare.
#pragma once

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// A bool scalar: whether all elements of the float32 tensors are finite. Of an IndexedSlices the rows are looked at.
//
// If they are not, the run fails with OutOfRange before anything that was built later; where `loss_scale` is given, a
// float32 scalar, only if it is at most 1, so that it cannot be the reason and lowering it is no help.
Value AllFinite(absl::Span<const Value> tensors, Value loss_scale = {});

// Sets a dynamic loss scale for the next step as TensorFlow's DynamicLossScale does: halved, but to no less than 1, if
// the gradients of this one were not finite, doubled after `growth_steps` in a row in which they were, unless that is
// infinite. `loss_scale` is a float32 and `good_steps`, which counts them, an int64 scalar variable; `all_finite` is
// what AllFinite gave.
Node* UpdateLossScale(Value loss_scale, Value good_steps, Value all_finite, int64_t growth_steps = 2000);

}  // namespace official::compute
