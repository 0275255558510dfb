// Ops that treat each row of a tensor [..., C] by itself: softmax, layer normalization.
#pragma once

#include <cstdint>

#include "utils/compute/core/shape.h"

namespace official::compute {

// The shape without its last dimension: one number for each row.
inline Shape RowShape(const Shape& shape) { return Shape(shape.dims().subspan(0, shape.rank() - 1)); }

struct Rows {
  int64_t count, size;
};

inline Rows RowsOf(const Shape& shape) { return {shape.Product(0, shape.rank() - 1), shape.dim(-1)}; }

}  // namespace official::compute
