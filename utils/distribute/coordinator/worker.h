// The worker of a coordinated job: runs the functions that the coordinator schedules, one after another.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/program/program.h"
#include "utils/distribute/coordinator/functions.h"
#include "utils/distribute/coordinator/messages.h"
#include "utils/distribute/coordinator/variable_client.h"
#include "utils/distribute/custom_loop/distributed_dataset.h"
#include "utils/distribute/custom_loop/per_replica.h"
#include "utils/distribute/custom_loop/split_step.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/distribute/strategy.h"

namespace official::coordinator {

// WorkerContext: the worker, as the functions see it that it runs.
class WorkerContext {
 public:
  // The arguments must outlive the context.
  WorkerContext(const Functions& functions, distribute::ParameterServers& servers, distribute::Strategy& strategy);

  // The number of this worker, from 0, and that of all. The coordinator is none of them.
  int worker() const { return servers_.worker() - 1; }
  int num_workers() const { return servers_.num_workers() - 1; }
  // The number of this worker's devices, which run a step at the same time.
  int num_replicas_in_sync() const { return strategy_.num_replicas_in_sync(); }

  // Returns, of the next batches of this worker's data set, one for each device, the features and then the labels:
  // next(iterator). A device for which there is none any more gets an empty batch. OutOfRange after the last one,
  // FailedPrecondition if the coordinator has not created the data set; else errors of the set.
  absl::StatusOr<std::vector<distribute::DistributedValue>> NextPerReplica(const std::string& dataset);
  // Returns the tensors of the next batch; FailedPrecondition if the worker has several devices.
  absl::StatusOr<std::vector<compute::Tensor>> Next(const std::string& dataset);
  // Returns what the function of this name has returned on this worker, when the coordinator has created its per-worker
  // values. FailedPrecondition if it has not.
  absl::StatusOr<std::vector<compute::Tensor>> PerWorkerValues(const std::string& function) const;
  // Runs a registered step on all devices: reads the variables from the parameter servers, computes, lets the servers
  // make the updates, and returns the results, as strategy.run does. The devices sum gradients, and what they add.
  // Several workers update at the same time, so that a gradient may be of older values than those that it changes.
  // NotFound for a step that is not registered or reads a variable that is on no server; else errors of the step.
  absl::StatusOr<std::vector<distribute::PerReplica>> RunPerReplica(
      const std::string& step, absl::Span<const distribute::DistributedValue> inputs);
  // Does the same with tensors that all devices get, and returns the results of the first one.
  absl::StatusOr<std::vector<compute::Tensor>> Run(const std::string& step, absl::Span<const compute::Tensor> inputs);

  // Does what a request asks, and returns the results.
  WorkerAnswer Answer(const WorkerRequest& request);

 private:
  struct Step {
    std::vector<distribute::ReplicaStep> built;  // by device
    std::vector<std::unique_ptr<compute::Program>> programs;
    std::vector<std::string> read;  // the names of the variables that it reads
  };
  using Tensors = std::vector<compute::Tensor>;
  absl::Status MakeDataset(const std::string& name);
  // Takes the inputs of each device.
  absl::StatusOr<Step*> FindStep(const std::string& name, absl::Span<const Tensors> inputs);
  absl::Status ReadVariables(const Step& step);
  // Lets the servers make the updates of a step that has been run.
  absl::Status HandOver(const std::string& name, const Step& step, const Tensors& inputs);

  const Functions& functions_;
  distribute::ParameterServers& servers_;
  distribute::Strategy& strategy_;
  VariableClient client_;
  // The store that a device reads.
  compute::VariableStore& StoreOf(size_t device) { return *stores_[stores_.size() == 1 ? 0 : device]; }
  // The variables as last read: by device, or of all devices that compute in the host's memory.
  std::vector<std::unique_ptr<compute::VariableStore>> stores_;
  std::vector<std::unique_ptr<compute::Arena>> arenas_;  // by device
  std::map<std::string, Step> steps_;                    // by name and types
  std::map<std::string, distribute::DistributedDatasetPtr> datasets_;
  std::map<std::string, std::vector<compute::Tensor>> values_;  // by function
};

// Does what the coordinator asks, on the devices of the strategy, until it has ended the job, and then leaves the
// servers. An error of a function is the coordinator's. Cancelled if the coordinator or a server is lost, as of
// Exchange::Receive.
absl::Status ServeWorker(const Functions& functions, distribute::ParameterServers& servers,
                         distribute::Strategy& strategy);

}  // namespace official::coordinator
