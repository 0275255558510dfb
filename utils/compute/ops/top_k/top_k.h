// The largest elements of each row.
#pragma once

#include <utility>

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName ArgMax("ArgMax");
inline constexpr OpName TopK("TopK");

}  // namespace official::compute::op

// The input and the outputs of TopK.
namespace official::compute::top_k {
enum Input : int { kX };
enum Output : int { kValues, kIndices };
}  // namespace official::compute::top_k

namespace official::compute {

// The position of the largest element along the last dimension, the first one among equals: x [..., C] gives int64
// [...]. C must be at least 1.
Value ArgMax(Value x);

// The k largest elements along the last dimension in descending order, the lower position first among equals, and their
// positions: x [..., C] gives values [..., k] of x's type and indices int32 [..., k]. 1 <= k <= C.
std::pair<Value, Value> TopK(Value x, int k);

}  // namespace official::compute
