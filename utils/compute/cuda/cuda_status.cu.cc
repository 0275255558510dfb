#include "utils/compute/cuda/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

absl::Status ErrorStatus(bool lacks_memory, const std::string& message) {
  return lacks_memory ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  return ErrorStatus(error == cudaErrorMemoryAllocation, absl::StrCat(call, ": ", cudaGetErrorString(error),
                                                                      " (CUDA error ", static_cast<int>(error), ")"));
}

absl::Status CudaStatus(cudnnStatus_t error, absl::string_view call) {
  if (error == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof(detail));
  return ErrorStatus(error == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                         error == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                     absl::StrCat(call, ": ", cudnnGetErrorString(error), " ", detail));
}

absl::Status CudaStatus(cublasStatus_t error, absl::string_view call) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return ErrorStatus(error == CUBLAS_STATUS_ALLOC_FAILED, absl::StrCat(call, ": ", cublasLtGetStatusString(error)));
}

}  // namespace official::compute
