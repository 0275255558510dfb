#include "utils/compute/cpu/parallel.h"

#include <omp.h>
#include <pmmintrin.h>
#include <xmmintrin.h>

// ThreadSanitizer does not see the synchronization inside libgomp. These two calls tell it what OpenMP guarantees: all
// that came before the parallel region happens before its body, and the body before all that follows.
#ifdef __SANITIZE_THREAD__
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#define OFFICIAL_ACQUIRE(address) __tsan_acquire(address)
#define OFFICIAL_RELEASE(address) __tsan_release(address)
#else
#define OFFICIAL_ACQUIRE(address)
#define OFFICIAL_RELEASE(address)
#endif

namespace official::compute {

void FlushDenormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
}

int NumThreads() { return omp_get_max_threads(); }

void SetNumThreads(int n) { omp_set_num_threads(n); }

// Not instrumented itself: the compiler's own hand-over of `run` and `context` to the threads lies in here.
__attribute__((no_sanitize("thread"), noinline)) void ParallelRun(int parts, void (*run)(void* context, int part),
                                                                  void* context) {
  [[maybe_unused]] static char fork_tag, join_tag;
  OFFICIAL_RELEASE(&fork_tag);
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) {
    OFFICIAL_ACQUIRE(&fork_tag);
    FlushDenormals();
    run(context, part);
    OFFICIAL_RELEASE(&join_tag);
  }
  OFFICIAL_ACQUIRE(&join_tag);
}

}  // namespace official::compute
