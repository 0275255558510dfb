// Owners of streams and events, and functions that make and order them. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <type_traits>

#include "absl/status/statusor.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"

namespace official::compute {

struct StreamDeleter {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using CudaStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamDeleter>;

struct EventDeleter {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using CudaEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventDeleter>;

// Makes a stream of the current device whose work takes precedence over the kernels that run at the same time, which
// would otherwise keep it from the multiprocessors.
inline absl::StatusOr<CudaStream> MakeUrgentStream() {
  int lowest = 0, highest = 0;
  RETURN_IF_ERROR(CudaStatus(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange"));
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
                             "cudaStreamCreateWithPriority"));
  return CudaStream(stream);
}

// Makes a stream of the current device.
inline absl::StatusOr<CudaStream> MakeStream() {
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  return CudaStream(stream);
}

// Makes an event of the current device; by default it is for ordering only.
inline absl::StatusOr<CudaEvent> MakeEvent(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags"));
  return CudaEvent(event);
}

// Makes `to` wait until `from` has done what it was given so far. `from` and `event` belong to the current device; the
// event may be used again at once.
inline absl::Status WaitFor(cudaStream_t to, cudaStream_t from, const CudaEvent& event) {
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(event.get(), from), "cudaEventRecord"));
  return CudaStatus(cudaStreamWaitEvent(to, event.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace official::compute
