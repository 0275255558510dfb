// What a reduction's attributes say, for its shape rule, gradient and kernels.
#pragma once

#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::compute {

// For each dimension of the input of a Sum, Mean, Max, Min or BiasAddGrad node whether it is reduced.
std::vector<bool> ReducedAxes(const Node& node);

Shape ReducedShape(const Shape& shape, const std::vector<bool>& reduced, bool keep_dims);

}  // namespace official::compute
