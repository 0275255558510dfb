// A data race on purpose: planted_race_test shows that the thread sanitizer's configuration reports races in our
// parallel loops and does not merely stay silent.

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "utils/compute/cpu/parallel.h"

int main() {
  official::compute::SetNumThreads(2);
  int64_t shared = 0;
  std::atomic<int> begun = 0;  // relaxed: it makes two threads take part, and orders nothing
  official::compute::ParallelFor(2, 1, [&](int64_t begin, int64_t end) {
    begun.fetch_add(1, std::memory_order_relaxed);
    while (begun.load(std::memory_order_relaxed) < 2) {
    }
    for (int i = 0; i < 100000; ++i) shared += end - begin;
  });
  std::printf("%ld\n", static_cast<long>(shared));
}
