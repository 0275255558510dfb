// Reverse-mode differentiation: adds the backward pass to a graph.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// Adds to the graph of `y` the nodes that compute the gradient of sum(y) with respect to each of `xs` (usually a scalar
// loss and the trainable variables). Result i has the type of xs[i]; it is invalid if y does not depend on xs[i].
//
// The graph fails with Unimplemented if y depends on one of `xs` through an op that has no gradient, as most ops of the
// backward pass (TanhGrad): second derivatives exist only of ops whose first ones are computed by ops that have some.
// Through integers, comparisons and Sign no gradient flows.
//
// The rules read variables where this is called: call it before the updates of what the forward pass has read, or the
// gradients mix old and new values.
//
// The gradient of a table that is only read by Gather is an IndexedSlices node: its inputs are indices int32 [n] and
// rows [n, ...], its output the dense gradient. An op that knows sparse gradients (ApplyDeferredAdam) takes the inputs,
// and the dense sum is then never computed.
std::vector<Value> Gradients(Value y, absl::Span<const Value> xs);

// The same for the gradient of the sum over k of sum(ys[k] * seeds[k]); seeds[k] has the type of ys[k].
std::vector<Value> Gradients(absl::Span<const Value> ys, absl::Span<const Value> seeds, absl::Span<const Value> xs);

}  // namespace official::compute
