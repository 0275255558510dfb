// Helpers for launching kernels, and what their code shares. Only for CUDA code; tests compile it for the host, too
// (utils/compute/cuda_emulation).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace official::compute {

// The number of blocks for `count` items, `of_block` in each.
inline unsigned NumBlocks(int64_t count, int64_t of_block) {
  return static_cast<unsigned>((count + of_block - 1) / of_block);
}

// Calls f with a value of the type in which a kernel counts its threads, one for each of `count` items: 32 bits where
// they suffice, since their divisions are fast.
template <typename F>
auto WithIndexType(int64_t count, F f) {
  constexpr int64_t kMaxBlock = 1024;
  return count <= std::numeric_limits<uint32_t>::max() - kMaxBlock ? f(uint32_t()) : f(uint64_t());
}

// Gives the stream a kernel to run; LaunchStatus, called next, returns the error if it could not be launched. A kernel
// that is a template needs all of its template arguments.
template <typename... Parameters>
void Launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream,
            const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

// The number of this thread in the grid.
template <typename Index>
__device__ Index ThreadIndex() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}

#ifdef __CUDACC__
// The type of a variable in shared memory: __shared__ Shared<float[32][33]> tile;
template <typename T>
using Shared = T;

// The shared memory whose size is an argument of Launch.
template <typename T>
__device__ T* DynamicShared() {
  extern __shared__ __align__(32) unsigned char shared[];
  return reinterpret_cast<T*>(shared);
}
#else
using cuda_emulation::DynamicShared;
using cuda_emulation::Shared;
#endif

}  // namespace official::compute
