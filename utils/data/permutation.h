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
  // Where position `i` of the epoch's order points.
  int64_t operator()(int64_t i) const;

 private:
  static constexpr int kRounds = 8;
  int64_t n_;
  int right_bits_;
  uint64_t left_mask_, right_mask_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace official::data
