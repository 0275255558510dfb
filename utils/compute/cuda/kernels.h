// All op families with CUDA kernels. A new one is a declaration here, a call in RegisterCudaKernels and a line in
// CUDA_KERNELS of the BUILD file.
#pragma once

#include "utils/compute/runtime/kernel.h"

namespace official::compute {

// In utils/compute/ops/<family>/<family>.cu.cc:
void RegisterBatchNormCuda(KernelRegistry& kernels);
void RegisterCollectiveCuda(KernelRegistry& kernels);
void RegisterConvCuda(KernelRegistry& kernels);
void RegisterConvPoolCuda(KernelRegistry& kernels);
void RegisterElementwiseCuda(KernelRegistry& kernels);
void RegisterMatMulCuda(KernelRegistry& kernels);
void RegisterOptimizerCuda(KernelRegistry& kernels);
void RegisterPoolingCuda(KernelRegistry& kernels);

inline void RegisterCudaKernels(KernelRegistry& kernels) {
  RegisterBatchNormCuda(kernels);
  RegisterCollectiveCuda(kernels);
  RegisterConvCuda(kernels);
  RegisterConvPoolCuda(kernels);
  RegisterElementwiseCuda(kernels);
  RegisterMatMulCuda(kernels);
  RegisterOptimizerCuda(kernels);
  RegisterPoolingCuda(kernels);
}

}  // namespace official::compute
