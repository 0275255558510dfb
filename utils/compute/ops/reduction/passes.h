// A reduction's attributes, resolved for its shape rule, gradient and the kernels of all devices.
#pragma once

#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::compute {

// Returns for each dimension of the input of a Sum, Mean, Max, Min or BiasAddGrad node: true if it is reduced.
std::vector<bool> ReducedAxes(const Node& node);

Shape ReducedShape(const Shape& shape, const std::vector<bool>& reduced, bool keep_dims);

// A reduction of the middle of an array [outer, rows, inner].
struct ReductionPass {
  int64_t outer, rows, inner;
  double divisor = 1;  // the result is divided by it
};

// The passes that compute such a node one after the other, the last axes first; at least one.
std::vector<ReductionPass> ReductionPasses(const Node& node);

}  // namespace official::compute
