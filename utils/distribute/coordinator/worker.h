// The worker of a coordinated job: runs the functions that the coordinator schedules, one after another.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/program/program.h"
#include "utils/data/batch.h"
#include "utils/distribute/coordinator/functions.h"
#include "utils/distribute/coordinator/messages.h"
#include "utils/distribute/coordinator/variable_client.h"
#include "utils/distribute/custom_loop/split_step.h"
#include "utils/distribute/parameter_servers.h"

namespace official::coordinator {

// WorkerContext: the worker, as the functions see it that it runs.
class WorkerContext {
 public:
  // The arguments must outlive the context.
  WorkerContext(const Functions& functions, distribute::ParameterServers& servers, compute::Device& device)
      : functions_(functions),
        servers_(servers),
        device_(device),
        client_(servers),
        variables_(device),
        arena_(device) {}

  // The number of this worker, from 0, and that of all. The coordinator is none of them.
  int worker() const { return servers_.worker() - 1; }
  int num_workers() const { return servers_.num_workers() - 1; }

  // Returns the features and then the labels of the next batch of this worker's data set: next(iterator). OutOfRange
  // after the last one, FailedPrecondition if the coordinator has not created the data set; else errors of the set.
  absl::StatusOr<std::vector<compute::Tensor>> Next(const std::string& dataset);
  // Returns what the function of this name has returned on this worker, when the coordinator has created its per-worker
  // values. FailedPrecondition if it has not.
  absl::StatusOr<std::vector<compute::Tensor>> PerWorkerValues(const std::string& function) const;
  // Runs a registered step: reads the variables from the parameter servers, computes, lets the servers make the
  // updates, and returns the results, as strategy.run does. Several workers update at the same time, so that a gradient
  // may be of older values than those that it changes. NotFound for a step that is not registered or reads a variable
  // that is on no server; else errors of the step.
  absl::StatusOr<std::vector<compute::Tensor>> Run(const std::string& step, absl::Span<const compute::Tensor> inputs);

  // Does what a request asks, and returns the results.
  WorkerAnswer Answer(const WorkerRequest& request);

 private:
  struct Step {
    distribute::WorkerStep built;
    std::vector<std::string> read;  // the names of the variables that it reads
    std::unique_ptr<compute::Program> program;
  };
  absl::Status MakeDataset(const std::string& name);
  absl::StatusOr<Step*> FindStep(const std::string& name, absl::Span<const compute::TensorType> inputs);

  const Functions& functions_;
  distribute::ParameterServers& servers_;
  compute::Device& device_;
  VariableClient client_;
  compute::VariableStore variables_;  // as last read
  compute::Arena arena_;
  std::map<std::string, Step> steps_;  // by name and types
  std::map<std::string, data::BatchSourcePtr> datasets_;
  std::map<std::string, std::vector<compute::Tensor>> values_;  // by function
};

// Does what the coordinator asks until it has ended the job, and then leaves the servers. An error of a function is the
// coordinator's. Cancelled if the coordinator or a server is lost, as of Exchange::Receive.
absl::Status ServeWorker(const Functions& functions, distribute::ParameterServers& servers, compute::Device& device);

}  // namespace official::coordinator
