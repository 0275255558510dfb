#include "utils/compute/cpu/convert.h"

#include <immintrin.h>

#include "utils/compute/cpu/simd.h"

namespace official::compute {

void ToFloats(const BFloat16* from, float* to, int64_t n) {
  WithSimd([=] {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
  });
}

void FromFloats(const float* from, BFloat16* to, int64_t n) {
  WithSimd([=] {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = BFloat16(from[i]);
  });
}

// x86-64-v3 has instructions for halves (F16C), eight at a time.
void ToFloats(const Half* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

void FromFloats(const float* from, Half* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) to[i] = Half(from[i]);
}

}  // namespace official::compute
