// Functions: what the tasks of a coordinated job can be asked to do, by name. All tasks run the same program and
// register the same functions, since only names and tensors travel between them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/distribute/custom_loop/distributed_dataset.h"
#include "utils/distribute/custom_loop/replica_context.h"

namespace official::coordinator {

class WorkerContext;

// WorkerFn: a function that a worker runs, as those given to tf.distribute.coordinator.ClusterCoordinator.schedule.
using WorkerFn = std::function<absl::StatusOr<std::vector<compute::Tensor>>(
    WorkerContext& context, absl::Span<const compute::Tensor> arguments)>;

class Functions {
 public:
  // Registers a function for ClusterCoordinator::Schedule. A later function of the same name replaces it.
  void Register(const std::string& name, WorkerFn fn) { functions_[name] = std::move(fn); }
  // Registers a step for WorkerContext::Run: the function of a custom loop, with variables on the parameter servers.
  void RegisterStep(const std::string& name, distribute::ReplicaFn fn) { steps_[name] = std::move(fn); }
  // Registers a function that makes the data set of a worker. Its input_pipeline_id is the number of the worker, from
  // 0.
  void RegisterDataset(const std::string& name, distribute::DatasetFn fn) { datasets_[name] = std::move(fn); }

  // Each returns NotFound if nothing is registered under the name.
  absl::StatusOr<const WorkerFn*> Find(const std::string& name) const { return FindIn(functions_, "function", name); }
  absl::StatusOr<const distribute::ReplicaFn*> FindStep(const std::string& name) const {
    return FindIn(steps_, "step", name);
  }
  absl::StatusOr<const distribute::DatasetFn*> FindDataset(const std::string& name) const {
    return FindIn(datasets_, "data set", name);
  }

 private:
  template <typename Fn>
  static absl::StatusOr<const Fn*> FindIn(const std::map<std::string, Fn>& registered, absl::string_view what,
                                          const std::string& name) {
    const auto found = registered.find(name);
    if (found != registered.end()) return &found->second;
    return absl::NotFoundError(absl::StrCat("no ", what, " '", name, "' is registered; register it on all tasks"));
  }

  std::map<std::string, WorkerFn> functions_;
  std::map<std::string, distribute::ReplicaFn> steps_;
  std::map<std::string, distribute::DatasetFn> datasets_;
};

}  // namespace official::coordinator
