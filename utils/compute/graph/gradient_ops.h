// The ops of families above that gradients are made of: Gradients() adds and joins by them what flows into one value,
// and the gradients of elementwise ops undo broadcasting by them. They are named here because the headers of their
// families cannot be included from below, and include this one.
#pragma once

#include "utils/compute/graph/op_name.h"

namespace official::compute::op {

// utils/compute/ops/elementwise:
inline constexpr OpName Add("Add");
// utils/compute/ops/array:
inline constexpr OpName AddRows("AddRows");
inline constexpr OpName Concat("Concat");
inline constexpr OpName IndexedSlices("IndexedSlices");
inline constexpr OpName Reshape("Reshape");
// utils/compute/ops/reduction:
inline constexpr OpName BiasAddGrad("BiasAddGrad");
inline constexpr OpName Sum("Sum");

}  // namespace official::compute::op

// The inputs and the output of IndexedSlices.
namespace official::compute::indexed_slices {
enum Input : int { kIndices, kRows };
enum Output : int { kY };
}  // namespace official::compute::indexed_slices
