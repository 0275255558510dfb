// A random permutation that is computed element by element, so that an epoch's order needs no memory and can be entered
// anywhere.
#pragma once

#include <array>
#include <cstdint>

namespace official::data {

// A permutation of {0, ..., n - 1} as a pure function of (n, seed, epoch); n >= 1.
// A Feistel network over the next power of two (Luby and Rackoff, "How to Construct Pseudorandom Permutations from
// Pseudorandom Functions", 1988); values outside [0, n) are sent through again until they fall inside (cycle walking,
// Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed, int64_t epoch);
  // Returns the number at position `i` of the epoch's order.
  int64_t operator()(int64_t i) const {
    uint64_t x = static_cast<uint64_t>(i);
    do Scramble<1>(&x);
    while (x >= static_cast<uint64_t>(n_));
    return static_cast<int64_t>(x);
  }
  // Sets out[k] = (*this)(begin + k), 0 <= k < n; much faster than one by one.
  void Map(int64_t begin, int64_t n, int64_t* out) const;

 private:
  static constexpr int kRounds = 8;
  // The round function: multiplications and shifts that let every input bit reach every output bit.
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    return x ^ (x >> 32);
  }
  // Permutes the numbers below the power of two, kCount of them at a time, since each takes long but depends on no
  // other.
  template <int64_t kCount>
  void Scramble(uint64_t* x) const {
    const Permutation self = *this;  // so that the compiler knows that writing x does not change it
    uint64_t left[kCount], right[kCount];
#pragma omp simd
    for (int64_t k = 0; k < kCount; ++k) {
      left[k] = x[k] >> self.right_bits_;
      right[k] = x[k] & self.right_mask_;
    }
    for (int round = 0; round < kRounds; round += 2) {
#pragma omp simd
      for (int64_t k = 0; k < kCount; ++k) left[k] ^= Mix(right[k] + self.keys_[round]) & self.left_mask_;
#pragma omp simd
      for (int64_t k = 0; k < kCount; ++k) right[k] ^= Mix(left[k] + self.keys_[round + 1]) & self.right_mask_;
    }
#pragma omp simd
    for (int64_t k = 0; k < kCount; ++k) x[k] = left[k] << self.right_bits_ | right[k];
  }

  int64_t n_;
  int right_bits_;
  uint64_t left_mask_, right_mask_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace official::data
