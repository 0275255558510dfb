// Several channels at a time, explicitly: the compiler would cut loops over uint8 codes together with floats into
// pieces of 64 channels, more than most images have.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "utils/compute/core/dtype.h"

namespace official::compute {

// Eight channels in vector registers.
struct EightLanes {
  typedef float Floats __attribute__((vector_size(32)));
  typedef int32_t Ints __attribute__((vector_size(32)));

  static Floats Load(const float* from) {
    Floats values;
    std::memcpy(&values, from, sizeof(values));
    return values;
  }
  static Floats Load(const BFloat16* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof(halves));
    return reinterpret_cast<Floats>(__builtin_convertvector(halves, Bits) << 16);
  }
  static Floats Load(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Ints Load(const uint8_t* from) {
    Bytes bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    return __builtin_convertvector(bytes, Ints);
  }
  static void Store(const Floats& values, float* to) { std::memcpy(to, &values, sizeof(values)); }
  // Rounds as BFloat16(float) does.
  static void Store(const Floats& values, BFloat16* to) {
    const Bits u = reinterpret_cast<Bits>(values);
    const Bits rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    const Bits quiet_nan = (u >> 16) | 0x40;
    const Halves halves = __builtin_convertvector(values != values ? quiet_nan : rounded, Halves);
    std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
  }
  static void Store(const Floats& values, Half* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  static void Store(const Ints& values, uint8_t* to) {
    const Bytes bytes = __builtin_convertvector(values, Bytes);
    std::memcpy(to, &bytes, sizeof(bytes));
  }

 private:
  typedef uint32_t Bits __attribute__((vector_size(32)));
  typedef uint16_t Halves __attribute__((vector_size(16)));
  typedef uint8_t Bytes __attribute__((vector_size(8)));
};

// One channel.
struct OneLane {
  using Floats = float;
  using Ints = int32_t;
  template <typename T>
  static Floats Load(const T* from) {
    return static_cast<float>(*from);
  }
  static Ints Load(const uint8_t* from) { return *from; }
  template <typename T>
  static void Store(float value, T* to) {
    *to = static_cast<T>(value);
  }
  static void Store(Ints value, uint8_t* to) { *to = static_cast<uint8_t>(value); }
};

// Calls f(EightLanes(), c) for blocks of 8 channels and f(OneLane(), c) for the rest.
template <typename F>
inline void ForLanes(int64_t channels, F&& f) {
  int64_t c = 0;
  for (; c + 8 <= channels; c += 8) f(EightLanes(), c);
  for (; c < channels; ++c) f(OneLane(), c);
}

}  // namespace official::compute
