// The sum over the replicas of several workers in the order of TreeSum over all replicas, whichever worker holds which:
// who adds what. Workers hold ranges of the replicas 0, 1, ... in ascending order, so a worker adds up those subtrees
// of the one tree that lie within its range, and somebody adds the results up the rest of the tree.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "utils/compute/core/batch_parts.h"

namespace official::distribute {

// Returns the largest subtrees of TreeSum(0, num_replicas) within `range`, in ascending order: each a range of
// replicas, together all of `range`.
std::vector<compute::Share> CoverNodes(int num_replicas, const compute::Share& range);

// Calls add(a, b), for adding the sum that begins with replica b to the one that begins with replica a, in the order of
// TreeSum(0, num_replicas), wherever the tree joins two of the `nodes`, which CoverNodes made of ranges that together
// have all replicas. The whole sum then begins with replica 0.
void JoinNodes(int num_replicas, const std::vector<compute::Share>& nodes, absl::FunctionRef<void(int a, int b)> add);

// Calls the same for the subtree of one node, from its replicas on.
void JoinReplicas(const compute::Share& node, absl::FunctionRef<void(int a, int b)> add);

// Returns the elements, of a pack of so many, that a worker adds up for all: multiples of 16 floats, a line of the
// cache.
compute::Share SegmentOf(int64_t elements, int worker, int num_workers);

// sum[i] += x[i] for i < n.
void AddTo(float* __restrict__ sum, const float* __restrict__ x, int64_t n);

}  // namespace official::distribute
