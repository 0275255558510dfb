// Elements that a thread loads, converts or stores at once. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/half.h"

namespace official::compute {

// kWidth elements, a power of two.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
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

// Rounds each element, as T(float) does; pairs in one instruction where the GPU has it.
template <typename T, int kWidth>
__device__ Pack<T, kWidth> RoundPack(const Pack<float, kWidth>& x) {
  Pack<T, kWidth> y;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kWidth > 1 && sizeof(T) == 2) {
    Pack<uint32_t, kWidth / 2> pairs;
#pragma unroll
    for (int k = 0; k < kWidth / 2; ++k) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs.at[k]) : "f"(x.at[2 * k + 1]), "f"(x.at[2 * k]));
      } else {
        static_assert(std::is_same_v<T, Half>);
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pairs.at[k]) : "f"(x.at[2 * k + 1]), "f"(x.at[2 * k]));
      }
    }
    return std::bit_cast<Pack<T, kWidth>>(pairs);
  }
#endif
#pragma unroll
  for (int k = 0; k < kWidth; ++k) y.at[k] = T(x.at[k]);
  return y;
}

}  // namespace official::compute
