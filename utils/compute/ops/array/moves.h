// Plans of the ops that only move elements, for the kernels of all devices.
#pragma once

#include <vector>

#include "utils/compute/core/box_copy.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// The types of kernels that only move bytes.
std::vector<DType> AllTypes();

// The boxes that a Concat, Slice or Pad node copies: one for each input.
std::vector<BoxCopy> BoxCopiesOf(const Node& node);

// The dimensions of the output of a Transpose, outermost first, those that stay neighbours merged and those of size 1
// left out; at least one. Strides are in elements.
std::vector<MoveDim> TransposeDims(const Node& node);

}  // namespace official::compute
