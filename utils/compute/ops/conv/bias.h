// Biases, one number per channel, on CUDA.
#pragma once

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "utils/compute/core/tensor.h"

namespace official::compute {

// Computes y += bias; with `relu` negative values become 0 (NaN stays). y [..., C], bias [C], both of y's type.
absl::Status AddBias(cudaStream_t stream, const TensorType& y_type, const void* bias, bool relu, void* y);

// Computes d_bias [C], the sum of dy [..., C] over all but the last dimension, in float and in an order that depends on
// the shape alone.
int64_t BiasGradientScratchBytes(const TensorType& dy_type);
absl::Status BiasGradient(cudaStream_t stream, const TensorType& dy_type, const void* dy, void* d_bias, void* scratch);

}  // namespace official::compute
