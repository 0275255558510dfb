// One pool of threads for the whole program: OpenMP's, which oneDNN uses too, so that its threads and ours never
// compete.
#pragma once

#include <algorithm>
#include <cstdint>

namespace official::compute {

// The number of threads that a parallel loop started by this thread uses, this one included. Initially it is the number
// of cores.
int NumThreads();
// Sets this number for loops (oneDNN's included) started by this thread: logical devices share the cores this way.
void SetNumThreads(int n);

// Runs this thread's parallel loops on one thread while it lives, in builds with the thread sanitizer; no effect in
// others. It guards calls of a library that is not instrumented: the sanitizer does not see how OpenMP hands work over
// to the threads, and would report it as races.
class OneThreadUnderTsan {
#ifdef __SANITIZE_THREAD__
 public:
  OneThreadUnderTsan() : before_(NumThreads()) { SetNumThreads(1); }
  ~OneThreadUnderTsan() { SetNumThreads(before_); }

 private:
  const int before_;
#else
 public:
  ~OneThreadUnderTsan() {}
#endif
};

// Makes the float arithmetic of this thread treat denormal numbers as zero from now on: they are slow, and TensorFlow
// flushes them too. The threads of a parallel loop do so by themselves.
void FlushDenormals();

// Calls run(context, part) for part in [0, parts), each part on a thread of its own, and returns when all have
// finished.
void ParallelRun(int parts, void (*run)(void* context, int part), void* context);

// Calls f(begin, end) on ranges that cover [0, n) once, in parallel, each of at least `grain` items (except the last).
// The ranges depend on n, grain and NumThreads() only, so sums made per range are reproducible.
template <typename F>
void ParallelFor(int64_t n, int64_t grain, F&& f) {
  const int64_t most = grain > 0 ? (n + grain - 1) / grain : n;
  const int parts = static_cast<int>(std::min<int64_t>(NumThreads(), most));
  if (n <= 0) return;
  if (parts <= 1) {
    f(int64_t{0}, n);
    return;
  }
  struct Context {
    F& f;
    int64_t n;
    int parts;
  } context{f, n, parts};
  ParallelRun(
      parts,
      [](void* opaque, int part) {
        const Context& c = *static_cast<Context*>(opaque);
        const int64_t begin = c.n * part / c.parts, end = c.n * (part + 1) / c.parts;
        if (begin < end) c.f(begin, end);
      },
      &context);
}

}  // namespace official::compute
