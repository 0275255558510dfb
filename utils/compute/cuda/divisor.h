// Division by a number that the host knows when it launches a kernel. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

namespace official::compute {

// Divides numbers of an unsigned type by one that is not zero.
template <typename Index>
class Divisor {
 public:
  Divisor() : Divisor(1) {}
  explicit Divisor(Index divisor) : divisor_(divisor) {}

  __host__ __device__ Index value() const { return divisor_; }
  __host__ __device__ Index Quotient(Index n) const { return n / divisor_; }

 private:
  Index divisor_;
};

// With 32 bits by a multiplication: T. Granlund and P. Montgomery, "Division by Invariant Integers using
// Multiplication", 1994, figure 4.1.
template <>
class Divisor<uint32_t> {
 public:
  Divisor() : Divisor(1) {}
  explicit Divisor(uint32_t divisor) : divisor_(divisor) {
    const int bits = std::bit_width(divisor - 1);  // 2^bits is the least power of two that is not below the divisor
    multiplier_ = static_cast<uint32_t>((((uint64_t{1} << bits) - divisor) << 32) / divisor + 1);
    first_shift_ = bits > 0 ? 1 : 0;
    second_shift_ = bits > 0 ? bits - 1 : 0;
  }

  __host__ __device__ uint32_t value() const { return divisor_; }
  __host__ __device__ uint32_t Quotient(uint32_t n) const {
    const auto high = static_cast<uint32_t>(static_cast<uint64_t>(n) * multiplier_ >> 32);
    return (high + ((n - high) >> first_shift_)) >> second_shift_;
  }

 private:
  uint32_t divisor_, multiplier_;
  int first_shift_, second_shift_;
};

}  // namespace official::compute
