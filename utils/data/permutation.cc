#include "utils/data/permutation.h"

#include <algorithm>
#include <bit>

#include "utils/compute/core/check.h"
#include "utils/compute/core/random.h"
#include "utils/compute/cpu/simd.h"

namespace official::data {
namespace {

// Below this many bits a Feistel network of random functions is visibly not a random permutation; small sets walk
// through a larger domain instead.
constexpr int kMinBits = 10;

constexpr int64_t kSideBySide = 64, kBlock = 4 * kSideBySide;

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

void Permutation::Map(int64_t begin, int64_t n, int64_t* out) const {
  // Numbers on their way, and where in `out` each belongs. A number that has come out beyond n_ stays, to be sent
  // through again beside new ones, so that few rounds are of a few numbers.
  uint64_t x[kBlock] = {};
  int64_t at[kBlock];
  for (int64_t next = 0, left = 0; next < n || left > 0;) {
    const int64_t added = std::min(kBlock - left, n - next);
    for (int64_t k = 0; k < added; ++k) {
      x[left + k] = static_cast<uint64_t>(begin + next + k);
      at[left + k] = next + k;
    }
    left += added;
    next += added;
    compute::WithSimd([&] {
      const int64_t count = left;
      for (int64_t k = 0; k < count; k += kSideBySide) Scramble<kSideBySide>(x + k);
    });
    int64_t outside = 0;
    for (int64_t k = 0; k < left; ++k) {
      const uint64_t value = x[k];
      out[at[k]] = static_cast<int64_t>(value);
      x[outside] = value;
      at[outside] = at[k];
      outside += value >= static_cast<uint64_t>(n_);
    }
    left = outside;
  }
}

}  // namespace official::data
