// Program: a graph compiled for one device and one set of shapes. Compiling removes dead nodes, folds constants, fuses,
// chooses layouts and kernels, and gives every intermediate value a place in one arena; running allocates nothing.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
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
  // True to fuse ops; else every node runs as it was built (tests compare the two).
  bool fuse = true;
  // See KernelSpec; only used while compiling.
  AlgorithmChoices* choices = nullptr;
  // The arena for the intermediate values, which must outlive the program; if nullptr, the program has memory of its
  // own.
  Arena* arena = nullptr;
};

// The time at which one kernel ran, for a profile: from the end of the kernel before it to its own. On a device with
// memory of its own, a kernel that takes less time than it takes the host to give it is shown with the latter.
struct KernelTiming {
  std::string name, op;
  std::string result;             // type of output 0, with "blocked" if it is not row-major; empty: it has none
  std::string algorithm;          // Kernel::algorithm
  int64_t start_ns, duration_ns;  // start: nanoseconds of the monotonic clock
  std::optional<double> flops;    // FlopsOf the node (utils/compute/graph/node_cost.h)
  int64_t bytes;                  // BytesOf the node
};

struct RunOptions {
  // False: gives the device each kernel, even if there is a recording of all.
  bool replay = true;
  std::vector<KernelTiming>* timings = nullptr;  // one entry per kernel is appended
  // Checks every feed, variable and result, at the cost of time: OutOfRange names the first that is not finite.
  bool check_numerics = false;
  // Once it is not 0, on a device that uses the host's memory, the run may end with Cancelled before its next kernel,
  // but not after it has begun to update variables (OpDef::precedes_updates, is_update). The results computed until
  // then are lost; sums and caches in variables may be incomplete.
  const std::atomic<int>* stop = nullptr;
};

class Program {
 public:
  // Compiles the part of `graph` that `roots` need. The variables must exist in `variables`, which, like the device,
  // must outlive the program. Returns Unimplemented if the device has no kernel for a node, Internal if the variables
  // are in the memory of another device; else the graph's own error.
  static absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& graph, const GraphRoots& roots, Device& device,
                                                          VariableStore& variables, const CompileOptions& options = {});
  ~Program();

  // Runs once with one tensor per feed, in the order of roots.feeds and of their types. A device with memory of its own
  // may still be working on return; an error that depends on the data is then returned by the next Fetch or
  // VariableStore::Read, or by one of the next kMaxRunsBehind runs, which then has not begun.
  absl::Status Run(absl::Span<const Tensor> feeds, const RunOptions& options = {});
  // True if the next run would be recorded before it, or Record() now: the device makes recordings, the program has run
  // once, which is when libraries set themselves up, and there is no recording for the place where the arena is.
  bool RecordingIsDue() const;
  // Records the kernels. Errors name the node.
  absl::Status Record();
  bool has_recording() const;
  // Does with an error of Record() what device.recordings() says: returns it, or tells it to people and sets them to
  // kOff. Cancelled and DeadlineExceeded, which say that other devices or workers have failed or are late, are always
  // returned.
  static absl::Status HandleNoRecording(const absl::Status& error, Device& device);
  // The value of roots.fetches[i] after the last run. On the CPU it is a view that the next run of a program with the
  // same arena overwrites.
  absl::StatusOr<Tensor> Fetch(int i) const;

  // Begins to copy fetch i of the last run to `buffer`, made by the program's device for the bytes of its type: so it
  // can be read after later runs have begun.
  absl::Status StartFetch(int i, HostBuffer& buffer) const;

  // The bytes of intermediate values.
  int64_t arena_bytes() const;
  // Returns one line per kernel, or per node that a kernel was merged of, in order: op, name, types, layouts. For tests
  // and for people.
  std::string DebugString() const;

 private:
  struct Plan;
  explicit Program(std::unique_ptr<Plan> plan);
  std::unique_ptr<Plan> plan_;
};

// Compiles a graph without variables for `device` and runs it once. Feeds are in the order of `roots`.
absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, const GraphRoots& roots,
                                             absl::Span<const Tensor> feeds, Device& device,
                                             const CompileOptions& options = {});

}  // namespace official::compute
