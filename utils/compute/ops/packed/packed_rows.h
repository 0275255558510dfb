// Rows of packed sequences: which token of which sequence a row of a tensor [T, ...] holds.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::compute {

struct PackedPosition {
  int64_t sequence;  // the number of sequences for padding behind the last one
  int64_t position;  // in the sequence
};

// offsets [batch + 1], ascending from 0: sequence b has rows [offsets[b], offsets[b + 1]). constexpr, so that CUDA code
// can call it.
constexpr PackedPosition PositionOfRow(const int32_t* offsets, int64_t batch, int64_t row) {
  int64_t low = 0, high = batch;  // the last sequence that does not start behind the row
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

// InvalidArgument, naming the offset, if they do not ascend from 0 or go beyond `rows`. On the host.
absl::Status CheckOffsets(absl::string_view what, const int32_t* offsets, int64_t batch, int64_t rows);

}  // namespace official::compute
