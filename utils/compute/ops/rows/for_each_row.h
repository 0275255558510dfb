// The loop of the CPU kernels that treat each row by itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {

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
