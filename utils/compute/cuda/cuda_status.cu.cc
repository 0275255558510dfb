#include "utils/compute/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace official::compute {

absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat(call, ": ", cudaGetErrorString(error), " (CUDA error ", static_cast<int>(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

absl::Status CudaStatus(cudnnStatus_t error, absl::string_view call) {
  if (error == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof(detail));
  return absl::InternalError(absl::StrCat(call, ": ", cudnnGetErrorString(error), " ", detail));
}

absl::Status CudaStatus(cublasStatus_t error, absl::string_view call) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", cublasLtGetStatusString(error)));
}

}  // namespace official::compute
