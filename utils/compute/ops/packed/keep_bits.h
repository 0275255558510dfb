// The masks of dropout on packed sequences, for CPU kernels under WithSimd.
#pragma once

#include <algorithm>
#include <cstdint>

#include "utils/compute/cpu/philox_block.h"
#include "utils/compute/ops/packed/packed_draws.h"

namespace official::compute {

// Computes the bits of positions [position, position + positions) and blocks [block, block + blocks) of kDrawColumns
// columns: bit c % 32 of keep[(c / 32 - 2 * block) * positions + p - position] is 1 if column c of position p is kept.
inline void KeepBits(SequenceKey key, uint32_t plane, int64_t position, int64_t positions, int64_t block,
                     int64_t blocks, uint32_t threshold, uint32_t* keep) {
  constexpr int64_t kGroups = 4;  // a position and a block each, drawn together
  for (int64_t first = 0; first < positions * blocks; first += kGroups) {
    const int64_t groups = std::min(kGroups, positions * blocks - first);
    uint32_t words[4][kGroups * kDrawLanes];
    for (int64_t g = 0; g < kGroups; ++g) {
      const int64_t i = std::min(first + g, positions * blocks - 1);
      const auto draw = static_cast<uint32_t>((block + i / positions) * kDrawLanes);
      const auto p = static_cast<uint32_t>(position + i % positions);
#pragma omp simd
      for (int64_t l = 0; l < kDrawLanes; ++l) {
        words[0][g * kDrawLanes + l] = draw + static_cast<uint32_t>(l);
        words[1][g * kDrawLanes + l] = p;
        words[2][g * kDrawLanes + l] = plane;
        words[3][g * kDrawLanes + l] = key.salt;
      }
    }
    PhiloxBlock(key.key, words);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t i = first + g;
      for (int64_t half = 0; half < 2; ++half) {
        uint32_t bits = 0;
#pragma omp simd reduction(| : bits)
        for (uint32_t l = 0; l < kDrawLanes; ++l) {
          const uint32_t low = words[2 * half][g * kDrawLanes + l] >= threshold ? 1u : 0u;
          const uint32_t high = words[2 * half + 1][g * kDrawLanes + l] >= threshold ? 0x10000u : 0u;
          bits |= (low | high) << l;
        }
        keep[(i / positions * 2 + half) * positions + i % positions] = bits;
      }
    }
  }
}

// Computes the factors, 0 or rate.scale, of columns [chunk * kFactorColumns, (chunk + 1) * kFactorColumns) of a token.
inline constexpr int64_t kFactorColumns = 4 * kDrawColumns;
inline void DropFactors(SequenceKey key, uint32_t plane, int64_t position, int64_t chunk, const DropoutRate& rate,
                        float (&factors)[kFactorColumns]) {
  constexpr int64_t kDraws = kFactorColumns / 4;
  uint32_t words[4][kDraws];
#pragma omp simd
  for (int64_t d = 0; d < kDraws; ++d) {
    words[0][d] = static_cast<uint32_t>(chunk * kDraws + d);
    words[1][d] = static_cast<uint32_t>(position);
    words[2][d] = plane;
    words[3][d] = key.salt;
  }
  PhiloxBlock(key.key, words);
  for (int64_t block = 0; block < kDraws; block += kDrawLanes) {
    for (int64_t k = 0; k < 4; ++k) {
#pragma omp simd
      for (int64_t l = 0; l < kDrawLanes; ++l) {
        factors[block * 4 + k * kDrawLanes + l] = words[k][block + l] >= rate.threshold ? rate.scale : 0.0f;
      }
    }
  }
}

}  // namespace official::compute
