#include "utils/distribute/ordered_sum.h"

#include <algorithm>

namespace official::distribute {
namespace {

using compute::Share;

// Where TreeSum divides a range.
int64_t MiddleOf(const Share& range) { return range.begin + (range.size() + 1) / 2; }

void AppendCover(const Share& tree, const Share& range, std::vector<Share>& nodes) {
  if (tree.end <= range.begin || range.end <= tree.begin) return;
  if (range.begin <= tree.begin && tree.end <= range.end) {
    nodes.push_back(tree);
    return;
  }
  const int64_t middle = MiddleOf(tree);
  AppendCover({tree.begin, middle}, range, nodes);
  AppendCover({middle, tree.end}, range, nodes);
}

// Joins what is below `tree`, if `is_joined` does not say that it is done.
void Join(const Share& tree, absl::FunctionRef<bool(const Share&)> is_joined, absl::FunctionRef<void(int, int)> add) {
  if (is_joined(tree)) return;
  const int64_t middle = MiddleOf(tree);
  Join({tree.begin, middle}, is_joined, add);
  Join({middle, tree.end}, is_joined, add);
  add(static_cast<int>(tree.begin), static_cast<int>(middle));
}

}  // namespace

std::vector<Share> CoverNodes(int num_replicas, const Share& range) {
  std::vector<Share> nodes;
  AppendCover({0, num_replicas}, range, nodes);
  return nodes;
}

void JoinNodes(int num_replicas, const std::vector<Share>& nodes, absl::FunctionRef<void(int a, int b)> add) {
  const auto is_joined = [&](const Share& tree) {
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const Share& node) { return node.begin == tree.begin && node.end == tree.end; });
  };
  Join({0, num_replicas}, is_joined, add);
}

void JoinReplicas(const Share& node, absl::FunctionRef<void(int a, int b)> add) {
  Join(
      node, [](const Share& tree) { return tree.size() == 1; }, add);
}

Share SegmentOf(int64_t elements, int worker, int num_workers) {
  constexpr int64_t kLine = 16;
  const Share lines = compute::ShareOf((elements + kLine - 1) / kLine, worker, num_workers);
  return {std::min(elements, lines.begin * kLine), std::min(elements, lines.end * kLine)};
}

void AddTo(float* __restrict__ sum, const float* __restrict__ x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

}  // namespace official::distribute
