// Conversion of the CUDA libraries' errors to absl::Status: ResourceExhausted for lack of memory, else Internal. The
// message names the call and what the library says.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::compute {

absl::Status CudaStatus(cudaError_t error, absl::string_view call);
absl::Status CudaStatus(cudnnStatus_t error, absl::string_view call);
absl::Status CudaStatus(cublasStatus_t error, absl::string_view call);

// Call this after Launch: returns the error if it could not be launched. The message names `kernel`.
inline absl::Status LaunchStatus(absl::string_view kernel) { return CudaStatus(cudaGetLastError(), kernel); }

}  // namespace official::compute
