// Arithmetic that the kernels of moving averages on all devices have in common.
#pragma once

#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// Returns 1 - momentum, subtracted in float32 as TensorFlow's batch_normalization does: for 0.997 that is 0.003000021.
// Rounding the exact difference to float32 instead would change an average by 7e-6 of its step.
inline float MovingAverageRate(const Attrs& attrs) { return 1 - static_cast<float>(attrs.GetFloat("momentum")); }

}  // namespace official::compute
