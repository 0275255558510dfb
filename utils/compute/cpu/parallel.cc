#include "utils/compute/cpu/parallel.h"

#include <pmmintrin.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "utils/compute/cpu/available_cores.h"
#include "utils/compute/cpu/team.h"

namespace official::compute {
namespace {

// OMP_NUM_THREADS, or as many as the process may have cores.
int FindDefaultNumThreads() {
  if (const char* const text = std::getenv("OMP_NUM_THREADS")) {
    int n = 0;
    if (absl::SimpleAtoi(std::string(*absl::StrSplit(text, ',').begin()), &n) && n > 0) return n;
  }
  return AvailableCores();
}

thread_local int num_threads = 0;   // of SetNumThreads; 0: the default
thread_local int onednn_parts = 0;  // of OnednnParts; 0: there is none

void RunOnTeam(int parts, int threads, int most_threads, Team::RunFunction run, void* context) {
  if (parts <= 1 || place.in_region) {
    const Place outer = place;
    place = {.in_region = outer.in_region};
    for (int part = 0; part < parts; ++part) run(context, part);
    place = outer;
    return;
  }
  static thread_local Team team;
  team.Run(parts, threads, most_threads, run, context);
}

}  // namespace

void FlushDenormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
}

int DefaultNumThreads() {
  static const int by_default = std::min(FindDefaultNumThreads(), Team::kMostThreads);
  return by_default;
}

int NumThreads() { return num_threads > 0 ? num_threads : DefaultNumThreads(); }

void SetNumThreads(int n) { num_threads = std::min(n, Team::kMostThreads); }

int MostThreads() {
  constexpr int kOfEach = 4;
  return NumThreads() == 1 ? 1 : kOfEach * NumThreads();
}

OnednnParts::OnednnParts(int parts) : before_(onednn_parts) { onednn_parts = parts; }
OnednnParts::~OnednnParts() { onednn_parts = before_; }

int ThreadNumber() { return place.thread; }

void ParallelRun(int parts, void (*run)(void* context, int part), void* context) {
  FlushDenormals();
  RunOnTeam(parts, std::min(parts, NumThreads()), MostThreads(), run, context);
}

}  // namespace official::compute

// What oneDNN calls of OpenMP's runtime, so that its loops run on the same threads as ours: the linker finds these
// before those of libgomp.
extern "C" {

__attribute__((visibility("default"))) int omp_get_max_threads() {
  using official::compute::onednn_parts;
  return onednn_parts > 0 ? onednn_parts : official::compute::NumThreads();
}

__attribute__((visibility("default"))) void GOMP_parallel(void (*run)(void*), void* data, unsigned num_threads,
                                                          unsigned /*flags*/) {
  struct Context {
    void (*run)(void*);
    void* data;
  } context{run, data};
  using official::compute::onednn_parts;
  const int parts = official::compute::place.in_region ? 1
                    : num_threads > 0                  ? static_cast<int>(num_threads)
                                                       : omp_get_max_threads();
  // Without OnednnParts a thread for each part: they may wait for each other.
  const bool in_parts = onednn_parts > 0;
  official::compute::RunOnTeam(
      parts, in_parts ? std::min(parts, official::compute::NumThreads()) : parts,
      in_parts ? official::compute::MostThreads() : parts,
      [](void* opaque, int) {
        const Context& c = *static_cast<Context*>(opaque);
        c.run(c.data);
      },
      &context);
}

__attribute__((visibility("default"))) void GOMP_barrier() {
  using official::compute::place;
  if (place.parts > 1) place.team->Barrier();
}

__attribute__((visibility("default"))) int omp_get_thread_num() { return official::compute::place.part; }
__attribute__((visibility("default"))) int omp_get_num_threads() { return official::compute::place.parts; }
__attribute__((visibility("default"))) int omp_in_parallel() { return official::compute::place.in_region; }

}  // extern "C"
