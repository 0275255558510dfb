// Layer normalization.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute {

// Normalizes each row of x, then scales and shifts it:
//   y = (x - mean) * rsqrt(mean((x - mean)^2) + epsilon) * gamma + beta
// x [..., C] float, y of the same type; gamma and beta [C], float32 whatever the type of x, as are mean and variance.
// The gradient of gamma and beta has the same bits for any number of threads.
// Source: LayerNormalization of the official transformer, whose epsilon is 1e-6.
Value LayerNorm(Value x, Value gamma, Value beta, float epsilon = 1e-6f);

}  // namespace official::compute
