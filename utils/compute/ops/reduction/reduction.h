// Reductions over axes, named and defined as TensorFlow's, of float32, bfloat16 or half. The result has the type of x;
// sums are accumulated in more precision than float32, in an order that depends on the shape only.
#pragma once

#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName Sum("Sum");
inline constexpr OpName Mean("Mean");
inline constexpr OpName Max("Max");
inline constexpr OpName Min("Min");
inline constexpr OpName BiasAddGrad("BiasAddGrad");

}  // namespace official::compute::op

namespace official::compute {

// Reductions over all elements: a scalar.
Value Sum(Value x);
Value Mean(Value x);
Value Max(Value x);
Value Min(Value x);

// Reductions over `axes` (negative ones count from the end), which are removed from the shape or, with keep_dims, stay
// with size 1. Without elements Sum is 0, Mean NaN, Max -infinity and Min +infinity. Max and Min are NaN if an element
// is; their gradient is shared equally among the elements that have the extreme value.
Value Sum(Value x, std::vector<int64_t> axes, bool keep_dims = false);
Value Mean(Value x, std::vector<int64_t> axes, bool keep_dims = false);
Value Max(Value x, std::vector<int64_t> axes, bool keep_dims = false);
Value Min(Value x, std::vector<int64_t> axes, bool keep_dims = false);

// dy [..., C] summed over all but the last dimension: [C], the gradient of BiasAdd's bias.
Value BiasAddGrad(Value dy);

}  // namespace official::compute
