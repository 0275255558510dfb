// Ops that move elements without computing, named and defined as TensorFlow's. Elements are of any type unless told
// otherwise; gradients flow through floating ones.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// The same elements in the same order under another shape of as many; costs nothing. One size may be -1: what is left.
Value Reshape(Value x, std::vector<int64_t> shape);
// With a new dimension of size 1 before dimension `axis`; -1 adds it last.
Value ExpandDims(Value x, int axis);
// Without the dimension `axis`, whose size must be 1; negative axes count from the end.
Value Squeeze(Value x, int axis);

}  // namespace official::compute
