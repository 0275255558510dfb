// All op families with CUDA kernels. To add one, add a declaration here and a call in RegisterCudaKernels.
#pragma once

#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// These are defined in utils/compute/ops/<family>/<family>.cu.cc:
void RegisterArrayCuda(KernelRegistry& kernels);
void RegisterAttentionCuda(KernelRegistry& kernels);
void RegisterBatchNormCuda(KernelRegistry& kernels);
void RegisterCheckNumericsCuda(KernelRegistry& kernels);
void RegisterCollectiveCuda(KernelRegistry& kernels);
void RegisterConvCuda(KernelRegistry& kernels);
void RegisterConvPoolCuda(KernelRegistry& kernels);
void RegisterDeferredAdamCuda(KernelRegistry& kernels);
void RegisterDropoutCuda(KernelRegistry& kernels);
void RegisterElementwiseCuda(KernelRegistry& kernels);
void RegisterEmbeddingCuda(KernelRegistry& kernels);
void RegisterGatherCuda(KernelRegistry& kernels);
void RegisterL2LossCuda(KernelRegistry& kernels);
void RegisterLayerNormCuda(KernelRegistry& kernels);
void RegisterLossScaleCuda(KernelRegistry& kernels);
void RegisterMatMulCuda(KernelRegistry& kernels);
void RegisterNeuralFactorizationCuda(KernelRegistry& kernels);
void RegisterOptimizerCuda(KernelRegistry& kernels);
void RegisterPoolingCuda(KernelRegistry& kernels);
void RegisterReductionCuda(KernelRegistry& kernels);
void RegisterSoftmaxCuda(KernelRegistry& kernels);
void RegisterTopKCuda(KernelRegistry& kernels);

inline void RegisterCudaKernels(KernelRegistry& kernels) {
  RegisterArrayCuda(kernels);
  RegisterAttentionCuda(kernels);
  RegisterBatchNormCuda(kernels);
  RegisterCheckNumericsCuda(kernels);
  RegisterCollectiveCuda(kernels);
  RegisterConvCuda(kernels);
  RegisterConvPoolCuda(kernels);
  RegisterDeferredAdamCuda(kernels);
  RegisterDropoutCuda(kernels);
  RegisterElementwiseCuda(kernels);
  RegisterEmbeddingCuda(kernels);
  RegisterGatherCuda(kernels);
  RegisterL2LossCuda(kernels);
  RegisterLayerNormCuda(kernels);
  RegisterLossScaleCuda(kernels);
  RegisterMatMulCuda(kernels);
  RegisterNeuralFactorizationCuda(kernels);
  RegisterOptimizerCuda(kernels);
  RegisterPoolingCuda(kernels);
  RegisterReductionCuda(kernels);
  RegisterSoftmaxCuda(kernels);
  RegisterTopKCuda(kernels);
}

}  // namespace official::compute
