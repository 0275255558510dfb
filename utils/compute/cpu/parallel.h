// Parallel loops. oneDNN's run on the same threads, so that its and ours never compete.
#pragma once

#include <algorithm>
#include <cstdint>

namespace official::compute {

// Returns the number of threads that the process has for parallel loops where nobody sets one: OMP_NUM_THREADS, or
// AvailableCores(); at most Team::kMostThreads.
int DefaultNumThreads();

// The number of threads that a parallel loop started by this thread uses, this one included. Initially it is
// DefaultNumThreads().
int NumThreads();
// Sets this number, or Team::kMostThreads if that is smaller, for loops (oneDNN's included) started by this thread:
// logical devices share the cores this way.
void SetNumThreads(int n);

// Returns how many threads a parallel loop may use at most, NumThreads() of them at a time if the machine does nothing
// else: where other work keeps all cores busy, more take part (Team). ThreadNumber() is below it.
int MostThreads();

// Runs this thread's parallel loops on one thread while it lives, in builds with the thread sanitizer; no effect in
// others. It guards calls of a library that is not instrumented: the sanitizer does not see where its threads wait for
// each other, and would report races.
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

// While this lives, oneDNN divides what this thread asks it for into so many parts, as if there were as many threads,
// and threads, as of any loop, take them as they come: what it computes does not depend on the number of threads then.
// It is for primitives whose parts do not wait for each other, and for both their creation and their runs. 0: one part
// a thread.
class OnednnParts {
 public:
  explicit OnednnParts(int parts);
  ~OnednnParts();
  OnednnParts(const OnednnParts&) = delete;
  OnednnParts& operator=(const OnednnParts&) = delete;

 private:
  const int before_;
};

// Makes the float arithmetic of this thread treat denormal numbers as zero from now on: they are slow, and TensorFlow
// flushes them too. The threads of a parallel loop do so by themselves.
void FlushDenormals();

// Returns the number of the calling thread among those that run the loop it is in, below MostThreads(): for memory that
// a thread needs while it works on a range. 0 outside of loops.
int ThreadNumber();

// Calls run(context, part) for part in [0, parts), on up to NumThreads() threads (MostThreads() beside other work), and
// returns when all have finished. A loop within a loop runs on one thread.
void ParallelRun(int parts, void (*run)(void* context, int part), void* context);

// Calls f(begin, end) on ranges that cover [0, n) once, in parallel, each of at least `grain` items (except the last).
// There are several for each thread, so that those which have a core do the work of one that has none just now. The
// ranges depend on n, grain and NumThreads() only.
template <typename F>
void ParallelFor(int64_t n, int64_t grain, F&& f) {
  constexpr int kRangesPerThread = 4;
  if (n <= 0) return;
  const int64_t most = grain > 0 ? (n + grain - 1) / grain : n;
  const int threads = NumThreads();
  const int parts = threads == 1 ? 1 : static_cast<int>(std::min<int64_t>(threads * kRangesPerThread, most));
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
