// Reorder(x; from, to): the same images [N, H, W, C] in another memory layout. The layout planner puts it between
// kernels that want different layouts; `from` and `to` are integers of the enum Layout.
#pragma once

#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute::op {

inline constexpr OpName Reorder("Reorder");

}  // namespace official::compute::op

namespace official::compute {

// Seen from outside the values are the same. C is a multiple of 16.
Value Reorder(Value images, Layout from, Layout to);

}  // namespace official::compute
