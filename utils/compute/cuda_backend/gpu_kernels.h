// The kernels for GPUs that the program was built with.
#pragma once

namespace official::compute {

// "kernels for GPUs by CUDA 13.0, cuDNN 9.19.0 and NCCL 2.28.9", the versions of the headers that they were compiled
// with, or "without kernels for GPUs".
extern const char kGpuKernels[];

}  // namespace official::compute
