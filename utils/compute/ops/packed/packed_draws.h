// The random words of dropout on packed sequences: tensors whose rows are tokens, one sequence after the other. A word
// is a function of seed, step, stream, the sequence's index in the global batch, the token's position in its sequence
// and the column, so N replicas and a resumed run draw what one uninterrupted device draws, whatever row a token has.
#pragma once

#include <cstdint>

#include "utils/compute/core/random.h"

namespace official::compute {

// The key of all draws for one sequence, which is itself drawn.
struct SequenceKey {
  uint64_t key;
  uint32_t salt;
};

// `random_state` is RandomState of dropout.h, with sequences as the examples. `sequence` is an index among those of
// this replica.
constexpr SequenceKey KeyOfSequence(const int64_t* random_state, uint32_t stream, int64_t sequence) {
  const auto example = static_cast<uint64_t>(random_state[2] + sequence);
  const Philox4 words = Philox(static_cast<uint64_t>(random_state[0]),
                               {static_cast<uint32_t>(example), static_cast<uint32_t>(example >> 32), stream,
                                static_cast<uint32_t>(random_state[1])});
  return {words[0] | uint64_t{words[1]} << 32, words[2]};
}

// Column c takes word c / 16 % 4 of draw c / 64 * 16 + c % 16: sixteen draws give the words of 64 columns in order.
// `plane` is a further coordinate, such as a head.
inline constexpr int64_t kDrawLanes = 16, kDrawColumns = 4 * kDrawLanes;
constexpr Philox4 PackedDraw(SequenceKey k, uint32_t plane, uint32_t position, uint32_t draw) {
  return Philox(k.key, {draw, position, plane, k.salt});
}

// The constants of a kernel of dropout at `rate`: an element is kept, times `scale`, if its word is at least
// `threshold`.
struct DropoutRate {
  explicit DropoutRate(double rate)
      : threshold(static_cast<uint32_t>(rate * 0x1p32)), scale(static_cast<float>(1 / (1 - rate))) {}
  uint32_t threshold;
  float scale;
};

}  // namespace official::compute
