// bfloat16: the upper half of a float. This is a storage type; arithmetic happens in float. It is constexpr, so that
// CUDA code can call it.
#pragma once

#include <bit>
#include <cstdint>

namespace official::compute {

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  // Rounds to nearest, ties to even; NaN stays a (quiet) NaN.
  constexpr explicit BFloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    const bool is_nan = (u & 0x7fffffff) > 0x7f800000;
    bits = static_cast<uint16_t>(is_nan ? ((u >> 16) | 0x40) : rounded);
#endif
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(BFloat16) == 2);

}  // namespace official::compute
