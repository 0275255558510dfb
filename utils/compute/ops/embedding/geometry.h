// Geometry that the kernels of Embedding on all devices have in common.
#pragma once

#include <cstdint>

#include "utils/compute/ops/packed/packed_rows.h"

namespace official::compute {

// The row whose id the token at `row` uses; -1 for id 0.
constexpr int64_t IdRow(bool shift_right, int64_t row, const PackedPosition& at) {
  if (!shift_right) return row;
  return at.position == 0 ? -1 : row - 1;
}

}  // namespace official::compute
