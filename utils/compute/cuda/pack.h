// Elements that a thread loads, converts or stores at once. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "utils/compute/core/dtype.h"

namespace official::compute {

// kWidth elements, a power of two.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];

  __device__ float Float(int k) const { return static_cast<float>(at[k]); }
};

// 16-bit elements, in the registers as they were loaded.
template <typename T, int kWidth>
requires(kIsNarrowFloat<T>&& kWidth > 1) struct alignas(sizeof(T) * kWidth) Pack<T, kWidth> {
  uint32_t pairs[kWidth / 2];

  __device__ float Float(int k) const {
    const uint32_t pair = pairs[k / 2];
    if constexpr (std::is_same_v<T, BFloat16>) {
      return std::bit_cast<float>(k % 2 == 0 ? pair << 16 : pair & 0xffff0000);
    } else {
      return static_cast<float>(std::bit_cast<T>(static_cast<uint16_t>(k % 2 == 0 ? pair : pair >> 16)));
    }
  }
};

// The number of elements of T that fill the widest load.
template <typename T>
inline constexpr int kWidestLoad = 16 / sizeof(T);

// Returns the kWidth elements from `x` on, whose address is a multiple of their bytes.
template <int kWidth, typename T>
__device__ Pack<T, kWidth> LoadPack(const T* x) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(x);
}

template <typename T, int kWidth>
__device__ void StorePack(T* y, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(y) = pack;
}

// Returns the bits of two numbers rounded to T, the first in the lower half: in one instruction where the GPU has it.
template <typename T>
__device__ uint32_t RoundPair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  return T(first).bits | static_cast<uint32_t>(T(second).bits) << 16;
#endif
}

// Rounds each element to T.
template <typename T, int kWidth>
__device__ Pack<T, kWidth> RoundPack(const Pack<float, kWidth>& x) {
  Pack<T, kWidth> y;
  if constexpr (kIsNarrowFloat<T> && kWidth > 1) {
#pragma unroll
    for (int k = 0; k < kWidth / 2; ++k) y.pairs[k] = RoundPair<T>(x.at[2 * k], x.at[2 * k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) y.at[k] = T(x.at[k]);
  }
  return y;
}

}  // namespace official::compute
