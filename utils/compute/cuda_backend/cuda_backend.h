// The CUDA backend as the rest of the program sees it: a shared object, libofficial_cuda.so, that is loaded when GPUs
// are wanted. A program that never calls these functions loads nothing of CUDA; no program links it.
#pragma once

#include "absl/status/status.h"
#include "utils/compute/cuda_backend/compatibility.h"

namespace official::compute {

// Makes devices of kind "cuda" available to MakeDevice and their kernels to programs; the first call does the work. If
// no NVIDIA driver is loaded, it stops there. Returns FailedPrecondition, with the reason, for no driver, a driver that
// is too old (both versions), no GPU that can be used, a libofficial_cuda.so of another build, or libraries of another
// CUDA; NotFound for no libofficial_cuda.so, or no cuDNN or cuBLAS for it.
absl::Status LoadCudaBackend();

// The GPUs that LoadCudaBackend has found.
const CudaGpus& FoundCudaGpus();

// Adds the kernels only, which needs no driver: for the table of ops. Returns NotFound as above.
absl::Status LoadCudaKernels();

}  // namespace official::compute
