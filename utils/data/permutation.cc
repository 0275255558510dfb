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

constexpr int64_t kBlock = 256;

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
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t size = std::min(kBlock, n - done);
    uint64_t x[kBlock];
    int64_t at[kBlock];  // where in `out` x belongs
    for (int64_t k = 0; k < size; ++k) {
      x[k] = static_cast<uint64_t>(begin + done + k);
      at[k] = done + k;
    }
    for (int64_t left = size; left > 0;) {
      compute::WithSimd([&] {
        // Copies, so that the compiler knows that writing x does not change them.
        const Permutation self = *this;
        const int64_t count = left;
        for (int64_t k = 0; k < count; ++k) x[k] = self.Scramble(x[k]);
      });
      // Those outside [0, n) move to the front and go on.
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
}

}  // namespace official::data
