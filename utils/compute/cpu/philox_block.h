// Many draws of Philox (core/random.h) at once, for loops under WithSimd.
#pragma once

#include <cstdint>

namespace official::compute {

// Computes words[k][d] = Philox(key, {counter[0][d], ..., counter[3][d]})[k] in place, for all draws d. It goes round
// by round, since a loop over whole draws does not become vector code.
template <int64_t kDraws>
inline void PhiloxBlock(uint64_t key, uint32_t (&counter)[4][kDraws]) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int64_t d = 0; d < kDraws; ++d) {
      const uint64_t p0 = uint64_t{0xD2511F53} * counter[0][d];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2][d];
      counter[0][d] = static_cast<uint32_t>(p1 >> 32) ^ counter[1][d] ^ k0;
      counter[1][d] = static_cast<uint32_t>(p1);
      counter[2][d] = static_cast<uint32_t>(p0 >> 32) ^ counter[3][d] ^ k1;
      counter[3][d] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

}  // namespace official::compute
