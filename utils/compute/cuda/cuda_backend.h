// The CUDA backend as the rest of the program sees it: a shared object, libofficial_cuda.so, that is loaded when GPUs
// are wanted. A program that never calls these functions loads nothing of CUDA; none links it.
#pragma once

#include "absl/status/status.h"

namespace official::compute {

// Makes devices of kind "cuda" available to MakeDevice and their kernels to programs; the first call does the work.
// Where no NVIDIA driver is loaded it looks no further. FailedPrecondition, with the reason: no driver, a driver that
// is too old (both versions), no GPU. NotFound: no libofficial_cuda.so, or no cuDNN or cuBLAS for it.
absl::Status LoadCudaBackend();

// Adds the kernels only, which needs no driver: for the table of ops. NotFound as above.
absl::Status LoadCudaKernels();

}  // namespace official::compute
