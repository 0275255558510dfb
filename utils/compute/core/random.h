// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
// A draw is a pure function of a 64-bit key and a 128-bit counter, so any element of any stream can be made by any
// thread, replica or resumed run with the same bits.
#pragma once

#include <array>
#include <cstdint>

namespace official::compute {

using Philox4 = std::array<uint32_t, 4>;

// Four random words for (key, counter). It is constexpr, so that CUDA code can call it.
constexpr Philox4 Philox(uint64_t key, Philox4 counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// The draw of stream `stream` at position `index` under `seed`.
constexpr Philox4 Philox(uint64_t seed, uint64_t stream, uint64_t index) {
  return Philox(seed, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                       static_cast<uint32_t>(stream >> 32)});
}

// A float in [0, 1): the upper 24 bits of `word`.
constexpr float UniformFloat(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// An integer in [0, n) from 64 random bits, by multiply and shift; the bias is below n / 2^64.
inline uint64_t UniformInt(uint64_t bits, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

// Returns the FNV-1a hash of a name: the stream of a variable's initial value or of an op's random numbers.
constexpr uint64_t StreamOf(const char* name, uint64_t size) {
  uint64_t hash = 14695981039346656037u;
  for (uint64_t i = 0; i < size; ++i) hash = (hash ^ static_cast<uint8_t>(name[i])) * 1099511628211u;
  return hash;
}

}  // namespace official::compute
