// IEEE 754 binary16 ("float16", "half"): 5 bits of exponent, 10 of fraction. This is a storage type; arithmetic happens
// in float. It is constexpr, so that CUDA code can call it. The conversions have no branches, so loops over them become
// vector code, and they keep denormal halves whether or not the processor flushes denormal floats.
#pragma once

#include <bit>
#include <cstdint>

namespace official::compute {

struct Half {
  uint16_t bits = 0;

  Half() = default;
  // Rounds to nearest, ties to even; values from 65520 on become infinity, those up to 2^-25 zero. NaN stays a (quiet)
  // NaN.
  constexpr explicit Half(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const uint32_t u = std::bit_cast<uint32_t>(value), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    // The exponent is 127 - 15 too large; the bits that are lost round the rest, up into the exponent if need be.
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Next to 0.5 a float's last bit is worth 2^-24, as a denormal half's is.
    const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
    const uint32_t quiet_nan = (magnitude >> 13 & 0x3ff) | 0x7e00;
    const uint32_t finite = magnitude < 113u << 23 ? denormal : normal;
    const uint32_t large = magnitude > 0x7f800000 ? quiet_nan : 0x7c00;
    bits = static_cast<uint16_t>((magnitude < 143u << 23 ? finite : large) | sign);
#endif
  }
  constexpr explicit operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16, shifted = uint32_t{bits & 0x7fffu} << 13;
    const uint32_t normal = shifted + (112u << 23), special = shifted | 0x7f800000;
    // 2^-14 times 1.fraction, minus 2^-14
    const float denormal = std::bit_cast<float>(shifted + (113u << 23)) - 0x1p-14f;
    const uint32_t finite = shifted < 1u << 23 ? std::bit_cast<uint32_t>(denormal) : normal;
    return std::bit_cast<float>((shifted < 31u << 23 ? finite : special) | sign);
#endif
  }
};
static_assert(sizeof(Half) == 2);

}  // namespace official::compute
