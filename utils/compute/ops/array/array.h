// Ops that move elements without computing, named and defined as TensorFlow's. Elements may be of any type unless noted
// otherwise; gradients flow through floating ones. Negative axes count from the end.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName AddRows("AddRows");
inline constexpr OpName Concat("Concat");
inline constexpr OpName FirstRows("FirstRows");
inline constexpr OpName Gather("Gather");
inline constexpr OpName IndexedSlices("IndexedSlices");
inline constexpr OpName OneHot("OneHot");
inline constexpr OpName Pad("Pad");
inline constexpr OpName Reshape("Reshape");
inline constexpr OpName Slice("Slice");
inline constexpr OpName Transpose("Transpose");

}  // namespace official::compute::op

// The inputs and the output of Gather.
namespace official::compute::gather {
enum Input : int { kParams, kIndices };
enum Output : int { kY };
}  // namespace official::compute::gather

// The inputs and the output of IndexedSlices.
namespace official::compute::indexed_slices {
enum Input : int { kIndices, kRows };
enum Output : int { kY };
}  // namespace official::compute::indexed_slices

// The inputs and the output of AddRows.
namespace official::compute::add_rows {
enum Input : int { kX, kIndices, kRows };
enum Output : int { kY };
}  // namespace official::compute::add_rows

namespace official::compute {

// The same elements in the same order under another shape with the same number of elements; this costs nothing. One
// size may be -1: it is computed from the others.
Value Reshape(Value x, std::vector<int64_t> shape);
// x with a new dimension of size 1 before dimension `axis`; -1 adds it last.
Value ExpandDims(Value x, int axis);
// x without the dimension `axis`, whose size must be 1.
Value Squeeze(Value x, int axis);

// The first `rows` rows of x [V, ...], where they are: [rows, ...], which costs nothing. No gradient. `rows` is at most
// V.
Value FirstRows(Value x, int64_t rows);

// Dimension i of the result is dimension perm[i] of x.
Value Transpose(Value x, std::vector<int64_t> perm);

// The inputs, of one type and different in dimension `axis` only, joined along it.
Value Concat(absl::Span<const Value> inputs, int axis);
// The box of x that starts at `begin` and has the shape `size`.
Value Slice(Value x, std::vector<int64_t> begin, std::vector<int64_t> size);
// x with paddings[2 * i] zeros before and paddings[2 * i + 1] after it along dimension i.
Value Pad(Value x, std::vector<int64_t> paddings);
// Stack makes inputs of one type the slices of a new dimension `axis`; Unstack is the inverse.
Value Stack(absl::Span<const Value> inputs, int axis);
std::vector<Value> Unstack(Value x, int axis);

// indices [...] int32 or int64 -> [..., depth]: 1 at the index, else 0; all 0 for an index outside [0, depth).
Value OneHot(Value indices, int64_t depth, DType dtype = DType::kFloat32);

// params [V, ...], indices [i...] int32 -> [i..., ...]: the rows of params at the indices. Running fails with
// InvalidArgument if one is outside [0, V). The gradient of params is an IndexedSlices.
Value Gather(Value params, Value indices);
// The floating array [dense_shape] whose row v is the sum of the rows [n, ...] at which indices [n] int32 is v.
// Running fails as Gather does.
Value IndexedSlices(Value indices, Value rows, const Shape& dense_shape);
// x plus that array, row by row and in place if possible: how a sparse gradient is added to a dense one. No gradient.
Value AddRows(Value x, Value indices, Value rows);

// Zeros of x's shape and type.
Value ZerosLike(Value x);

}  // namespace official::compute
