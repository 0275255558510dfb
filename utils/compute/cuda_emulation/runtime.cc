// CUDA's runtime for emulated devices. Work that a stream is given is done at once, or kept by the recording. The
// error of a kernel stays, as on a device: every later call returns it.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <cub/device/device_radix_sort.cuh>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/stream_work.h"

// A function that does the work and returns what was wrong with it.
struct CUgraph_st {
  std::vector<official::compute::cuda_emulation::StreamWork> nodes;
};
struct CUgraphExec_st {
  std::vector<official::compute::cuda_emulation::StreamWork> nodes;
};
struct CUstream_st {
  cudaGraph_t recording = nullptr;
  bool refused = false;  // what the recording cannot hold
};
struct CUevent_st {
  std::chrono::steady_clock::time_point recorded = {};
};

namespace official::compute::cuda_emulation {
namespace {

constexpr int kNumDevices = 2;
constexpr size_t kMaxDynamicShared = 227 << 10, kDefaultDynamicShared = 48 << 10;  // of compute capability 9.0
constexpr size_t kMaxParameterBytes = 32764;

struct Errors {
  std::mutex mutex;
  cudaError_t sticky = cudaSuccess;
  std::string text;  // of sticky
};
Errors& AllErrors() {
  static auto* const errors = new Errors;
  return *errors;
}
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_text;
thread_local std::vector<cudaStream_t> recording_streams;  // which this thread made record

cudaError_t Return(cudaError_t error, std::string text = "") {
  {
    Errors& errors = AllErrors();
    const std::lock_guard<std::mutex> lock(errors.mutex);
    if (errors.sticky != cudaSuccess) return last_error = errors.sticky;
  }
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    last_error = error;
    last_text = std::move(text);
  }
  return error;
}

// Of memory and modules: a thread's recordings do not allow these, and come to nothing.
cudaError_t RefuseWhileRecording() {
  for (const cudaStream_t stream : recording_streams) stream->refused = true;
  return recording_streams.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

// The same of a call that this stream's recording does not allow.
cudaError_t RefuseOf(cudaStream_t stream) {
  if (stream->recording == nullptr) return cudaSuccess;
  stream->refused = true;
  return cudaErrorStreamCaptureUnsupported;
}

std::map<const void*, size_t>& DynamicSharedLimits() {
  static auto* const limits = new std::map<const void*, size_t>;
  return *limits;
}

}  // namespace

cudaError_t GiveWork(cudaStream_t stream, StreamWork work) {
  if (stream == nullptr) return Return(cudaErrorInvalidValue, "the default stream is not used");
  if (stream->recording != nullptr) {
    if (stream->refused) return Return(cudaErrorStreamCaptureInvalidated);
    stream->recording->nodes.push_back(std::move(work));
    return Return(cudaSuccess);
  }
  if (AllErrors().sticky == cudaSuccess) {
    if (std::optional<std::string> wrong = work()) {
      Errors& errors = AllErrors();
      const std::lock_guard<std::mutex> lock(errors.mutex);
      errors.sticky = cudaErrorLaunchFailure;
      errors.text = std::move(*wrong);
    }
  }
  return Return(cudaSuccess);
}

std::string TakeError() {
  Errors& errors = AllErrors();
  const std::lock_guard<std::mutex> lock(errors.mutex);
  if (std::exchange(errors.sticky, cudaSuccess) != cudaSuccess) last_error = cudaSuccess;
  return std::exchange(errors.text, "");
}

cudaError_t Allocate(void** data, size_t bytes, bool pinned) {
  if (const cudaError_t error = RefuseWhileRecording(); error != cudaSuccess) return Return(error);
  *data = pinned ? NewPinned(bytes) : NewBuffer(bytes);
  if (*data == nullptr) return Return(cudaErrorMemoryAllocation, "out of memory");
  return Return(cudaSuccess);
}

cudaError_t AllowDynamicShared(const void* kernel, int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > kMaxDynamicShared) {
    return Return(cudaErrorInvalidValue, absl::StrFormat("%d bytes of shared memory", bytes));
  }
  DynamicSharedLimits()[kernel] = bytes;
  return Return(cudaSuccess);
}

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, KernelCall call) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const auto refuse = [&](const char* why) {
    return Return(cudaErrorInvalidConfiguration,
                  absl::StrFormat("%d x %d x %d blocks of %d x %d x %d threads with %d bytes of shared memory: %s",
                                  grid.x, grid.y, grid.z, block.x, block.y, block.z, config.dynamicSmemBytes, why));
  };
  if (uint64_t{grid.x} * grid.y * grid.z == 0 || uint64_t{block.x} * block.y * block.z == 0) return refuse("none");
  if (grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff) return refuse("too many blocks");
  if (uint64_t{block.x} * block.y * block.z > 1024 || block.z > 64) return refuse("too many threads");
  if (call.parameter_bytes > kMaxParameterBytes) return refuse("arguments of more than 32,764 bytes");
  const auto limit = DynamicSharedLimits().find(call.kernel);
  if (config.dynamicSmemBytes > (limit == DynamicSharedLimits().end() ? kDefaultDynamicShared : limit->second)) {
    return refuse("more shared memory than was asked for");
  }
  return GiveWork(config.stream, [config, call = std::move(call)] { return RunGrid(config, call); });
}

namespace {

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  return GiveWork(stream, [=]() -> std::optional<std::string> {
    if (auto wrong = CheckCopy(to, from, bytes)) return absl::StrFormat("copy of %d bytes: %s", bytes, *wrong);
    std::memmove(to, from, bytes);
    return std::nullopt;
  });
}

}  // namespace
}  // namespace official::compute::cuda_emulation

using namespace official::compute::cuda_emulation;  // NOLINT: all that follows is CUDA's

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return error != cudaSuccess ? error : Return(cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorLaunchFailure:
      return AllErrors().text.c_str();
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "not allowed while a stream records";
    case cudaErrorStreamCaptureInvalidated:
      return "an earlier call is not allowed while a stream records";
    default:
      return last_text.c_str();
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kNumDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->major = 9;
  properties->multiProcessorCount = 3;
  properties->sharedMemPerBlockOptin = kMaxDynamicShared;
  properties->totalGlobalMem = kRegionBytes;
  return Return(cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  return Return(device >= 0 && device < kNumDevices ? cudaSuccess : cudaErrorInvalidDevice, "there is no such device");
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return Return(cudaSuccess);
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return Return(cudaSuccess); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Return(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = FreeBytes();
  *total = kRegionBytes;
  return Return(cudaSuccess);
}
cudaError_t cudaFree(void* data) {
  if (const cudaError_t error = RefuseWhileRecording(); error != cudaSuccess) return Return(error);
  if (data != nullptr && !DeleteBuffer(data)) return Return(cudaErrorInvalidValue, "no buffer begins there");
  return Return(cudaSuccess);
}
cudaError_t cudaFreeHost(void* data) {
  if (const cudaError_t error = RefuseWhileRecording(); error != cudaSuccess) return Return(error);
  if (data != nullptr && !DeletePinned(data)) return Return(cudaErrorInvalidValue, "no pinned memory begins there");
  return Return(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  if ((to_device && !DeviceRegion().Contains(to)) || (from_device && !DeviceRegion().Contains(from))) {
    return Return(cudaErrorInvalidValue, "a copy whose kind does not fit its addresses");
  }
  if (stream != nullptr && kind != cudaMemcpyDeviceToDevice) {
    if (const cudaError_t error = RefuseOf(stream); error != cudaSuccess) return Return(error);
  }
  return Copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return Copy(to, from, bytes, stream);
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return GiveWork(stream, [=]() -> std::optional<std::string> {
    if (auto wrong = CheckWrite(data, bytes)) return absl::StrFormat("setting %d bytes: %s", bytes, *wrong);
    std::memset(data, value, bytes);
    return std::nullopt;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return Return(cudaSuccess);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return Return(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return Return(RefuseOf(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaStreamQuery(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return Return(cudaSuccess); }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->recording != nullptr) return Return(cudaErrorInvalidValue, "the stream records already");
  stream->recording = new CUgraph_st;
  stream->refused = false;
  recording_streams.push_back(stream);
  return Return(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream->recording == nullptr) return Return(cudaErrorInvalidValue, "the stream does not record");
  *graph = std::exchange(stream->recording, nullptr);
  std::erase(recording_streams, stream);
  if (!stream->refused) return Return(cudaSuccess);
  delete std::exchange(*graph, nullptr);
  return Return(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->recording == nullptr ? cudaStreamCaptureStatusNone
            : stream->refused            ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return Return(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->nodes};
  return Return(cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const StreamWork& work : executable->nodes) {
    if (const cudaError_t error = GiveWork(stream, work); error != cudaSuccess) return error;
  }
  return Return(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return Return(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Return(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->recorded = std::chrono::steady_clock::now();
  return Return(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t) { return Return(cudaSuccess); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return Return(cudaSuccess); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->recorded - start->recorded).count();
  return Return(cudaSuccess);
}

cudaError_t cub::DeviceRadixSort::SortPairs(void* scratch, size_t& scratch_bytes, const int32_t* keys,
                                            int32_t* sorted_keys, const int32_t* values, int32_t* sorted_values,
                                            int count, int first_bit, int end_bit, cudaStream_t stream) {
  const size_t needed = 256 + 8 * static_cast<size_t>(count);
  if (scratch == nullptr) {
    scratch_bytes = needed;
    return Return(cudaSuccess);
  }
  if (scratch_bytes < needed) return Return(cudaErrorInvalidValue, "too little memory to sort in");
  return GiveWork(stream, [=]() -> std::optional<std::string> {
    const size_t bytes = count * sizeof(int32_t);
    for (const void* const from : {keys, values}) {
      if (auto wrong = CheckRead(from, bytes)) return absl::StrFormat("sort: %s", *wrong);
    }
    for (const auto& [to, size] :
         {std::pair<void*, size_t>{sorted_keys, bytes}, {sorted_values, bytes}, {scratch, needed}}) {
      if (auto wrong = CheckWrite(to, size)) return absl::StrFormat("sort: %s", *wrong);
    }
    std::memset(scratch, Poison(), needed);
    // The bits that are compared, the sign's turned around, so that negative keys come first.
    const auto key = [&](int i) {
      const uint32_t bits = static_cast<uint32_t>(keys[i]) ^ 0x80000000u;
      return end_bit - first_bit >= 32 ? bits : bits >> first_bit & ((1u << (end_bit - first_bit)) - 1);
    };
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
    for (int i = 0; i < count; ++i) {
      sorted_keys[i] = keys[order[i]];
      sorted_values[i] = values[order[i]];
    }
    return std::nullopt;
  });
}
