// Ops that treat each row of a tensor [..., C] by itself: softmax, layer normalization.
#pragma once

#include <algorithm>
#include <cstdint>

#include "utils/compute/core/shape.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"

namespace official::compute {

// The shape without its last dimension: one number for each row.
inline Shape RowShape(const Shape& shape) { return Shape(shape.dims().subspan(0, shape.rank() - 1)); }

struct Rows {
  int64_t count, size;
};

inline Rows RowsOf(const Shape& shape) { return {shape.Product(0, shape.rank() - 1), shape.dim(-1)}; }

// Calls f(row) for each row in [0, rows.count), in parallel and under WithSimd.
template <typename F>
void ForEachRow(const Rows& rows, F f) {
  constexpr int64_t kGrain = 8192;  // elements worth a thread
  ParallelFor(rows.count, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, rows.size)),
              [&](int64_t begin, int64_t end) {
                WithSimd([&] {
                  for (int64_t row = begin; row < end; ++row) f(row);
                });
              });
}

}  // namespace official::compute
