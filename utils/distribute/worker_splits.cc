#include "utils/distribute/worker_splits.h"

namespace official::distribute {
namespace {

// Appends the divisions that begin as `begun` does.
void Extend(const std::vector<compute::Share>& begun, int64_t num_replicas, int max_workers,
            std::vector<std::vector<compute::Share>>& splits) {
  const int64_t first = begun.empty() ? 0 : begun.back().end;
  if (first == num_replicas) return splits.push_back(begun);
  if (max_workers == 0) return;
  for (int64_t end = first + 1; end <= num_replicas; ++end) {
    std::vector<compute::Share> longer = begun;
    longer.push_back({first, end});
    Extend(longer, num_replicas, max_workers - 1, splits);
  }
}

}  // namespace

std::vector<std::vector<compute::Share>> AllSplits(int num_replicas, int max_workers) {
  std::vector<std::vector<compute::Share>> splits;
  Extend({}, num_replicas, max_workers, splits);
  return splits;
}

}  // namespace official::distribute
