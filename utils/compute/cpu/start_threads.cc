#include "utils/compute/cpu/start_threads.h"

#include "utils/compute/cpu/parallel.h"

namespace official::compute {

void StartThreads(int n) {
  const int before = NumThreads();
  SetNumThreads(n);
  ParallelRun(
      n, [](void*, int) {}, nullptr);
  SetNumThreads(before);
}

}  // namespace official::compute
