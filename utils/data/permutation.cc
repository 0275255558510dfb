#include "utils/data/permutation.h"

#include <algorithm>
#include <bit>

#include "utils/compute/core/check.h"
#include "utils/compute/core/random.h"

namespace official::data {
namespace {

// Below this many bits a Feistel network of random functions is visibly not a random permutation; small sets walk
// through a larger domain instead.
constexpr int kMinBits = 10;

// The round function: multiplications and shifts that let every input bit reach every output bit.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

}  // namespace

Permutation::Permutation(int64_t n, uint64_t seed, int64_t epoch) : n_(n) {
  OFFICIAL_CHECK(n >= 1) << "permutation of " << n;
  const int bits = std::max<int>(kMinBits, std::bit_width(static_cast<uint64_t>(n - 1)));
  right_bits_ = bits / 2;
  right_mask_ = (uint64_t{1} << right_bits_) - 1;
  left_mask_ = (uint64_t{1} << (bits - right_bits_)) - 1;
  for (int round = 0; round < kRounds; round += 2) {
    const compute::Philox4 words =
        compute::Philox(seed ^ compute::StreamOf("shuffle", 7), epoch, static_cast<uint64_t>(round));
    keys_[round] = uint64_t{words[0]} << 32 | words[1];
    keys_[round + 1] = uint64_t{words[2]} << 32 | words[3];
  }
}

int64_t Permutation::operator()(int64_t i) const {
  uint64_t x = static_cast<uint64_t>(i);
  do {
    uint64_t left = x >> right_bits_, right = x & right_mask_;
    for (int round = 0; round < kRounds; round += 2) {
      left ^= Mix(right + keys_[round]) & left_mask_;
      right ^= Mix(left + keys_[round + 1]) & right_mask_;
    }
    x = left << right_bits_ | right;
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

}  // namespace official::data
