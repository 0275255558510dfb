// Gradients that are not finite: ops that find them before an update, and a loss scale that adapts so that they are
// rare.
#pragma once

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName AllFinite("AllFinite");
inline constexpr OpName UpdateLossScale("UpdateLossScale");

}  // namespace official::compute::op

// The inputs of AllFinite before the tensors, if the attribute "scaled" is true; otherwise the tensors are the first.
namespace official::compute::all_finite {
enum Input : int { kLossScale };
inline constexpr int kNumScalars = 1;
}  // namespace official::compute::all_finite

// The inputs of UpdateLossScale.
namespace official::compute::update_loss_scale {
enum Input : int { kLossScale, kGoodSteps, kAllFinite };
}  // namespace official::compute::update_loss_scale

namespace official::compute {

struct FiniteCheck {
  // A float32 scalar: numbers that are not finite fail the run only if it is at most 1, so that it cannot be the reason
  // and lowering it is no help.
  Value loss_scale = {};
  // True if the graph runs on several devices. Those that share variables then check a part of the tensors each and
  // wait here for the answers of all: a barrier, before which none updates variables and behind which none of this
  // step's reads of them is left. A program on such devices does not compile without it.
  bool barrier = false;
};

// A bool scalar: true if all elements of the float32 tensors are finite. Of an IndexedSlices the rows are checked. If
// they are not, the run fails with OutOfRange before any node that was built later.
Value AllFinite(absl::Span<const Value> tensors, const FiniteCheck& check = {});

// Sets a dynamic loss scale for the next step as TensorFlow's DynamicLossScale does: halved, but to no less than 1, if
// the gradients of this step were not finite; doubled after `growth_steps` steps in a row with finite gradients, unless
// that is infinite. `loss_scale` is a float32 and `good_steps`, which counts those steps, an int64 scalar variable;
// `all_finite` is the result of AllFinite.
Node* UpdateLossScale(Value loss_scale, Value good_steps, Value all_finite, int64_t growth_steps = 2000);

}  // namespace official::compute
