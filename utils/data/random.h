// The random numbers for one example: a stream that is a pure function of (seed, epoch, index).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "utils/compute/core/random.h"

namespace official::data {

class Random {
 public:
  Random(uint64_t seed, int64_t epoch, int64_t index)
      // The tag keeps these streams apart from those of variables and dropout, which use the same seed.
      : key_(seed ^ compute::StreamOf("data", 4)),
        counter_{0, static_cast<uint32_t>(epoch), static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)} {}

  // Returns 32 random bits.
  uint32_t Bits() {
    if (used_ == 4) {
      words_ = compute::Philox(key_, counter_);
      ++counter_[0];
      used_ = 0;
    }
    return words_[used_++];
  }
  // Returns a number in [0, 1).
  float Uniform() { return compute::UniformFloat(Bits()); }
  // Returns a number in [low, high).
  float Uniform(float low, float high) { return low + (high - low) * Uniform(); }
  // Returns a number in {0, ..., n - 1}.
  int64_t UniformInt(int64_t n) {
    const uint64_t high = Bits();
    return static_cast<int64_t>(compute::UniformInt(high << 32 | Bits(), n));
  }
  // Returns a normal number of mean 0 and standard deviation 1 (Box and Muller 1958; one of the two values).
  float Normal() {
    const float radius = std::sqrt(-2.0f * std::log(1.0f - Uniform()));
    return radius * std::cos(2.0f * std::numbers::pi_v<float> * Uniform());
  }

 private:
  uint64_t key_;
  compute::Philox4 counter_;
  compute::Philox4 words_ = {};
  int used_ = 4;
};

}  // namespace official::data
