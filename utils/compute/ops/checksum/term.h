// What a checksum is made of: the sum, modulo 2^64, of a number for each 32-bit word of the tensor. Sums of integers do
// not depend on the order in which threads add.
#pragma once

#include <cstdint>

namespace official::compute {

// The number for the word at this index: the finalizer of SplitMix64, so that each bit of the word and its place
// changes about half of all bits.
constexpr uint64_t ChecksumTerm(int64_t index, uint32_t word) {
  uint64_t z = word + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The word at this index of `bytes` bytes; those behind the end count as 0.
inline constexpr int64_t kChecksumWordBytes = 4;
constexpr uint32_t ChecksumWord(const unsigned char* data, int64_t bytes, int64_t index) {
  uint32_t word = 0;
  for (int64_t k = 0; k < kChecksumWordBytes; ++k) {
    const int64_t at = index * kChecksumWordBytes + k;
    if (at < bytes) word |= static_cast<uint32_t>(data[at]) << (8 * k);
  }
  return word;
}

}  // namespace official::compute
