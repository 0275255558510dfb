#include "utils/compute/program/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace official::compute {

MemoryPlan PlanMemory(const std::vector<BufferRequest>& requests) {
  constexpr int64_t kAlignment = 64;
  MemoryPlan plan;
  plan.offsets.assign(requests.size(), 0);
  std::vector<int> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return requests[a].bytes > requests[b].bytes; });

  const auto rounded = [](int64_t bytes) {
    return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::vector<int> placed;  // sorted by offset
  for (const int id : order) {
    const BufferRequest& r = requests[id];
    const int64_t size = rounded(r.bytes);
    int64_t best_offset = -1, best_gap = INT64_MAX, end = 0;
    for (const int other : placed) {
      const BufferRequest& o = requests[other];
      if (o.last_call < r.first_call || r.last_call < o.first_call) continue;
      const int64_t gap = plan.offsets[other] - end;
      if (gap >= size && gap < best_gap) {
        best_gap = gap;
        best_offset = end;
      }
      end = std::max(end, plan.offsets[other] + rounded(o.bytes));
    }
    plan.offsets[id] = best_offset >= 0 ? best_offset : end;
    plan.arena_bytes = std::max(plan.arena_bytes, plan.offsets[id] + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id,
                                   [&](int a, int b) { return plan.offsets[a] < plan.offsets[b]; }),
                  id);
  }
  return plan;
}

}  // namespace official::compute
