// Digits drawn by this program, for machines without MNIST: strokes as several hands write them, with slant, width,
// distortion and noise, white on black in 28 x 28 pixels.
#pragma once

#include <cstdint>

#include "utils/compute/core/tensor.h"

namespace official::mnist {

struct DrawnDigits {
  compute::Tensor images;  // uint8 [count, 28, 28], 0 is the background
  compute::Tensor labels;  // int32 [count]
};

// Draws digits first, ..., first + count - 1 of an endless sequence. Each is a pure function of (seed, its number), so
// the result does not depend on the number of threads; the label of number i is i mod 10.
DrawnDigits DrawDigits(uint64_t seed, int64_t first, int64_t count, int num_threads);

}  // namespace official::mnist
