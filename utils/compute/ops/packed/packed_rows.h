// The rows of packed sequences: finds the token and the sequence that a row of a tensor [T, ...] holds.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::compute {

struct PackedPosition {
  int64_t sequence;  // the number of sequences for padding after the last one
  int64_t position;  // position in the sequence
};

// Returns the position of a row. offsets [batch + 1], ascending from 0: sequence b has rows [offsets[b], offsets[b +
// 1]). It is constexpr, so that CUDA code can call it.
constexpr PackedPosition PositionOfRow(const int32_t* offsets, int64_t batch, int64_t row) {
  int64_t low = 0, high = batch;  // the last sequence that does not start after the row
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (offsets[middle] <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return {low, row - offsets[low]};
}

// Returns InvalidArgument, naming the offset, if they do not ascend from 0 or go beyond `rows`. This runs on the host.
absl::Status CheckOffsets(absl::string_view what, const int32_t* offsets, int64_t batch, int64_t rows);

}  // namespace official::compute
