// Conversions of whole arrays between float and the 16-bit types. They run on the calling thread: each thread converts
// its part of an array.
#pragma once

#include <cstdint>

#include "utils/compute/core/dtype.h"

namespace official::compute {

// to[i] = float(from[i]) for i in [0, n)
void ToFloats(const BFloat16* from, float* to, int64_t n);
void ToFloats(const Half* from, float* to, int64_t n);
// to[i] = BFloat16(from[i]), to[i] = Half(from[i])
void FromFloats(const float* from, BFloat16* to, int64_t n);
void FromFloats(const float* from, Half* to, int64_t n);

}  // namespace official::compute
