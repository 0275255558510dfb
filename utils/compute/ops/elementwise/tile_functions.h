// The loops of the CPU kernels: one per functor of math.h, over a tile of elements, and the conversions between tiles
// and tensors. T, the type of a tile's elements, is float, int32_t or int64_t.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "utils/compute/core/dtype.h"

namespace official::compute {

// Computes y[i] = f(a[i], b[i], c[i]) for i in [0, n); functors of fewer operands ignore the rest. y may be a, b or c.
template <typename T>
using TileFunction = void (*)(const T* a, const T* b, const T* c, T* y, int64_t n);

// Sets to[i] = from[offset + i], converted.
template <typename T>
using TileLoad = void (*)(const void* from, int64_t offset, T* to, int64_t n);

// Sets to[offset + i] = from[i], converted.
template <typename T>
using TileStore = void (*)(const T* from, void* to, int64_t offset, int64_t n);

// Returns nullptr if math.h has no such functor for T.
template <typename T>
TileFunction<T> FindTileFunction(absl::string_view functor);
// The supported types are float32, bfloat16, half, int32, int64, uint8 and bool.
template <typename T>
TileLoad<T> FindTileLoad(DType from);
template <typename T>
TileStore<T> FindTileStore(DType to);

}  // namespace official::compute
