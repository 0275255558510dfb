// Sums over the devices of a group that trains together.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/communicator.h"

namespace official::compute::op {

inline constexpr OpName AllReduceStart("AllReduceStart");
inline constexpr OpName AllReduceDone("AllReduceDone");

}  // namespace official::compute::op

namespace official::compute {

// The sums of `values`, float32 of any shapes, over all devices whose programs are in the group, in the order of
// `values`. The values are summed in packs of about equal size, at most `num_packs`, in the order in which they are
// computed, and each pack is handed over as soon as its values exist, so that the exchange overlaps with the
// computation that follows. The gradient of a sum is the sum over the devices of its gradients. Every device of the
// group must run a graph that adds the same sums in the same order.
std::vector<Value> AllReduce(absl::Span<const Value> values, int num_packs);
// The same in packs of these sizes. The last pack takes the values that are computed last, the others are filled in the
// order of computation.
std::vector<Value> AllReduce(absl::Span<const Value> values, const PackSizes& sizes);

}  // namespace official::compute
