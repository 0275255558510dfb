// Stands in for the toolkit's header of this name where CUDA sources are compiled by the host's compiler: the part of
// CUDA's runtime that the project uses. Names and values are the toolkit's.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#define CUDART_VERSION 13000
#define __host__
#define __device__
#define __global__
#define __shared__ static constinit
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// The parameter becomes a reference to the launch's own copy: `const T __grid_constant__ name`.
#define __grid_constant__ &

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorTooManyPeers = 711,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1,
                          cudaHostAllocPortable = 1;

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  size_t sharedMemPerBlockOptin, totalGlobalMem;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

extern "C" {
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaFree(void* data);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
}

namespace official::compute::cuda_emulation {

// The functions below consist of these.
cudaError_t Allocate(void** data, size_t bytes, bool pinned);
cudaError_t AllowDynamicShared(const void* kernel, int bytes);
// The arguments of a launch, and the function that calls the kernel with them.
struct KernelCall {
  const void* kernel;
  std::shared_ptr<const void> arguments;
  size_t arguments_size;  // of the object
  size_t parameter_bytes;
  void (*run)(const void* arguments);
};
cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, KernelCall call);

void* DynamicSharedMemory(size_t alignment);
template <typename T>
T* DynamicShared() {
  return static_cast<T*>(DynamicSharedMemory(alignof(T)));
}

// The place of a variable in the shared memory of the running block.
class SharedPlace {
 public:
  // The memory of the block, unwritten when the block first asks for it.
  void* Of(size_t bytes, size_t alignment);

 private:
  uint64_t block_ = 0;  // for which place_ is
  void* place_ = nullptr;
};

// The type of a variable in shared memory: __shared__ Shared<float[32][33]> tile;
template <typename T>
class Shared {
 public:
  constexpr Shared() = default;
  T& get() { return *static_cast<T*>(place_.Of(sizeof(T), alignof(T))); }
  auto& operator[](int64_t i) { return get()[i]; }

 private:
  SharedPlace place_;
};

// Barriers and exchanges; see grid.h.
int SyncBlock(int kind, int value);
void SyncLanes(unsigned mask);
// Stores in `result` what lane `source` of those in the mask gave as `value`, both of `bytes` bytes.
void ExchangeLanes(unsigned mask, const void* value, int source, size_t bytes, void* result);
void BeginAtomic(const void* address, size_t bytes);

}  // namespace official::compute::cuda_emulation

template <typename T>
cudaError_t cudaMalloc(T** data, size_t bytes) {
  return official::compute::cuda_emulation::Allocate(reinterpret_cast<void**>(data), bytes, /*pinned=*/false);
}
template <typename T>
cudaError_t cudaMallocHost(T** data, size_t bytes) {
  return official::compute::cuda_emulation::Allocate(reinterpret_cast<void**>(data), bytes, /*pinned=*/true);
}
template <typename T>
cudaError_t cudaHostAlloc(T** data, size_t bytes, unsigned) {
  return cudaMallocHost(data, bytes);
}
template <typename F>
cudaError_t cudaFuncSetAttribute(F* kernel, cudaFuncAttribute, int value) {
  return official::compute::cuda_emulation::AllowDynamicShared(reinterpret_cast<const void*>(kernel), value);
}
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<std::decay_t<Parameters>...> arguments;
  };
  auto call = std::make_shared<const Call>(Call{kernel, {std::forward<Arguments>(arguments)...}});
  const auto run = [](const void* of) {
    const Call& c = *static_cast<const Call*>(of);
    std::apply(c.kernel, c.arguments);
  };
  constexpr size_t kBytes = (sizeof(std::decay_t<Parameters>) + ... + size_t{0});
  return official::compute::cuda_emulation::LaunchKernel(
      *config, {reinterpret_cast<const void*>(kernel), std::move(call), sizeof(Call), kBytes, run});
}

// The emulation sets these before it lets a thread run.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

inline void __syncthreads() { official::compute::cuda_emulation::SyncBlock(0, 0); }
inline int __syncthreads_or(int value) { return official::compute::cuda_emulation::SyncBlock(1, value); }
inline void __syncwarp(unsigned mask = 0xffffffff) { official::compute::cuda_emulation::SyncLanes(mask); }
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  T result;
  official::compute::cuda_emulation::ExchangeLanes(mask, &value, lane % 32, sizeof(T), &result);
  return result;
}
namespace official::compute::cuda_emulation {
inline int Lane() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}
}  // namespace official::compute::cuda_emulation
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  return __shfl_sync(mask, value, official::compute::cuda_emulation::Lane() ^ lane_mask);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const int lane = official::compute::cuda_emulation::Lane(), source = lane + static_cast<int>(distance);
  return __shfl_sync(mask, value, source < 32 ? source : lane);
}

// The emulation runs one thread at a time: an atomic operation is a plain one that is no race.
template <typename T>
__attribute__((no_sanitize("thread"))) T atomicExch(T* address, std::type_identity_t<T> value) {
  official::compute::cuda_emulation::BeginAtomic(address, sizeof(T));
  const T before = *address;
  *address = value;
  return before;
}
// Only of integers, whose sum does not depend on the order.
template <std::integral T>
__attribute__((no_sanitize("thread"))) T atomicAdd(T* address, std::type_identity_t<T> value) {
  official::compute::cuda_emulation::BeginAtomic(address, sizeof(T));
  const T before = *address;
  *address += value;
  return before;
}
template <typename T>
__attribute__((no_sanitize("thread"))) T atomicMin(T* address, std::type_identity_t<T> value) {
  official::compute::cuda_emulation::BeginAtomic(address, sizeof(T));
  const T before = *address;
  if (value < before) *address = value;
  return before;
}

// A product that is rounded: the compiler must not add to it in one instruction.
inline float __fmul_rn(float a, float b) {
  float product = a * b;
  asm("" : "+x"(product));
  return product;
}
template <typename T>
T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}
using std::isfinite;
using std::isnan;
