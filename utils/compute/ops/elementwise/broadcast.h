// The mapping from an output's elements to those of an input that is broadcast to it.
#pragma once

#include <vector>

#include "utils/compute/core/shape.h"

namespace official::compute {

// The output's elements in order as a few nested loops, with neighbours merged where the input allows it.
struct Broadcast {
  struct Dim {
    int64_t size;
    int64_t stride;  // stride of the input, in elements; 0 where it is repeated
  };
  std::vector<Dim> dims;  // outermost first; at least one

  // True if every element is used once, in order.
  bool is_identity() const { return dims.size() == 1 && dims[0].stride == 1; }
  // The number of the output's elements after which the input repeats: 1 for a scalar, C for a row [C] under [N, C].
  int64_t period() const;
  // The index of the input's element under element `i` of the output.
  int64_t Offset(int64_t i) const;
  // If the innermost dimension is repeated: the number of the input's elements that are contiguous from that under `i`
  // on.
  int64_t RepeatedTogether(int64_t i) const;
};

// Makes the mapping; `input` must broadcast to `output` by NumPy's rule.
Broadcast MakeBroadcast(const Shape& input, const Shape& output);

}  // namespace official::compute
