// Program: a graph compiled for one device and one set of shapes. Compiling removes dead nodes, folds constants, fuses,
// chooses layouts and kernels, and gives every intermediate value a place in one arena; running allocates nothing.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/program/arena.h"
#include "utils/compute/program/variable_store.h"

namespace official::compute {

struct CompileOptions {
  // Off: every node runs as it was built (tests compare the two).
  bool fuse = true;
  // See KernelSpec; only used while compiling.
  AlgorithmChoices* choices = nullptr;
  // Where the intermediate values live, which must outlive the program; nullptr: memory of its own.
  Arena* arena = nullptr;
};

// When one kernel ran, for a profile.
struct KernelTiming {
  std::string name, op;
  int64_t start_ns, duration_ns;  // start: nanoseconds of the monotonic clock
};

struct RunOptions {
  std::vector<KernelTiming>* timings = nullptr;  // one entry per kernel is appended
  // Looks, at the cost of time, at every feed, variable and result: OutOfRange names the first that is not finite.
  bool check_numerics = false;
  // Once it is not 0, on a device that uses the host's memory, the run may end with Cancelled before its next kernel,
  // but not once it has begun to update variables (OpDef::precedes_updates, is_update). What it has computed until then
  // is lost; sums and caches in variables may be incomplete.
  const std::atomic<int>* stop = nullptr;
};

class Program {
 public:
  // Compiles what `roots` need of `graph`. The variables must exist in `variables`, which, like the device, must
  // outlive the program. Unimplemented if the device lacks a kernel; else the graph's own error.
  static absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& graph, const GraphRoots& roots, Device& device,
                                                          VariableStore& variables, const CompileOptions& options = {});
  ~Program();

  // Runs once with one tensor per feed, in the order of roots.feeds and of their types. A device with memory of its own
  // may still be at work on return; an error that only the data tell then comes out of the next Fetch or
  // VariableStore::Read, or of one of the next kMaxRunsBehind runs, which then has not begun.
  absl::Status Run(absl::Span<const Tensor> feeds, const RunOptions& options = {});
  // The value of roots.fetches[i] after the last run. On the CPU a view that the next run of a program with the same
  // arena overwrites.
  absl::StatusOr<Tensor> Fetch(int i) const;

  // Bytes of intermediate values.
  int64_t arena_bytes() const;
  // One line per kernel, in order: op, name, types, layouts. For tests and for people.
  std::string DebugString() const;

 private:
  struct Plan;
  explicit Program(std::unique_ptr<Plan> plan);
  std::unique_ptr<Plan> plan_;
};

// Computes fetches without variables on a fresh CPU program: for tests and constant folding. Feeds in order of `roots`.
absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, const GraphRoots& roots,
                                             absl::Span<const Tensor> feeds, Device& device,
                                             const CompileOptions& options = {});

}  // namespace official::compute
