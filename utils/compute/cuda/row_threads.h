// Helpers of kernels that treat each row of an array [rows, size] by itself: the threads that share a row, a warp for
// short rows and a block for long ones. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"

namespace official::compute {

// The threads of a row. kThreads is a power of two from 32 to 1024. A thread treats kWidth elements at a time; kWidth
// divides the size, and the rows lie one after the other in aligned memory.
template <int kThreads, int kWidth>
struct RowThreads {
  static constexpr int kRowThreads = kThreads;
  static constexpr int kElements = kWidth;
  static constexpr int kBlock = kThreads < 256 ? 256 : kThreads;
  static constexpr int kRowsOfBlock = kBlock / kThreads;

  // The row of this thread. It may be past the last one, but then is for all threads of the row.
  __device__ static int64_t Row() { return static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kThreads; }
  // This thread's number among those of the row.
  __device__ static int Lane() { return threadIdx.x % kThreads; }

  // The reduction of the values of the row's threads, the same bits for all of them and in every run. All of them must
  // call it; op is commutative. It also is a barrier: each thread's earlier reads are done before any of them
  // continues.
  template <typename T, typename Op>
  __device__ static T Reduce(T value, Op op) {
    value = ReduceLanes<32>(value, op);
    if constexpr (kThreads > 32) {
      constexpr int kWarps = kThreads / 32;
      __shared__ Shared<T[kWarps]> of_warps;
      __syncthreads();  // the previous reduction has been read
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
      __syncthreads();
      value = ReduceLanes<kWarps>(of_warps[threadIdx.x % kWarps], op);
    }
    return value;
  }

  // Calls f(i, x[i] as a float...) for the elements i of the row that are this thread's.
  template <typename F, typename... X>
  __device__ static void ForEach(int64_t size, F f, const X*... x) {
    for (int64_t i = Lane() * kWidth; i < size; i += kThreads * kWidth) {
      const auto apply = [&](const Pack<X, kWidth>&... packs) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) f(i + k, packs.Float(k)...);
      };
      apply(*reinterpret_cast<const Pack<X, kWidth>*>(x + i)...);
    }
  }

  // Sets y[i] = f(i, x[i] as a float...) for the same elements; y may be one of x.
  template <typename Y, typename F, typename... X>
  __device__ static void Map(int64_t size, Y* y, F f, const X*... x) {
    for (int64_t i = Lane() * kWidth; i < size; i += kThreads * kWidth) {
      const auto apply = [&](const Pack<X, kWidth>&... packs) {
        Pack<float, kWidth> result;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) result.at[k] = f(i + k, packs.Float(k)...);
        return RoundPack<Y>(result);
      };
      *reinterpret_cast<Pack<Y, kWidth>*>(y + i) = apply(*reinterpret_cast<const Pack<X, kWidth>*>(x + i)...);
    }
  }

 private:
  template <int kLanes, typename T, typename Op>
  __device__ static T ReduceLanes(T value, Op op) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      value = op(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    return value;
  }
};

// Calls f with the RowThreads for rows of `size` elements, of which at most `kWidest` may be loaded at once.
template <int kWidest, typename F>
auto WithRowThreads(int64_t size, F f) {
  constexpr int64_t kMaxForWarp = 1024;
  if (size % kWidest == 0) {
    return size <= kMaxForWarp ? f(RowThreads<32, kWidest>()) : f(RowThreads<1024, kWidest>());
  }
  return size <= kMaxForWarp ? f(RowThreads<32, 1>()) : f(RowThreads<1024, 1>());
}

}  // namespace official::compute
