// The elements of a row as integers that are ordered as TopK orders them, so that a maximum of integers finds the next
// one whatever the order in which threads run.
#pragma once

#include <bit>
#include <cstdint>

namespace official::compute {

constexpr uint64_t JoinKey(uint32_t ordered, uint32_t index) { return uint64_t{ordered} << 32 | ~index; }

// The key of an element. The larger of two elements, or the first of equal ones (0 and -0 are), has the larger key. NaN
// is the smallest element. Keys are never 0.
constexpr uint64_t OrderKey(int32_t value, uint32_t index) {
  return JoinKey(static_cast<uint32_t>(value) ^ 0x80000000u, index);
}
constexpr uint64_t OrderKey(float value, uint32_t index) {
  const auto bits = std::bit_cast<uint32_t>(value == 0 ? 0.0f : value);
  const uint32_t ordered = bits >> 31 == 0 ? bits | 0x80000000u : ~bits;
  return JoinKey(value == value ? ordered : 0u, index);
}

constexpr uint32_t IndexOfKey(uint64_t key) { return ~static_cast<uint32_t>(key); }

}  // namespace official::compute
