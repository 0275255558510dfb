// ClusterCoordinator: the program of a job with parameter servers, which lets the workers run functions, as
// tf.distribute.coordinator.ClusterCoordinator with ParameterServerStrategy. As in TensorFlow's guide "Parameter server
// training with ParameterServerStrategy":
//
//   RETURN_IF_ERROR(coordinator.CreateVariables("train_step", {points_type, labels_type}));
//   coordinator.CreatePerWorkerDataset("training_data");
//   for (int epoch = 0; epoch < num_epochs; ++epoch) {
//     for (int step = 0; step < steps_per_epoch; ++step) {
//       RETURN_IF_ERROR(coordinator.Schedule("train").status());
//     }
//     RETURN_IF_ERROR(coordinator.Join());
//   }
//
// Names refer to what is registered on all tasks (functions.h). All functions are for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/distribute/coordinator/closure_queue.h"
#include "utils/distribute/coordinator/functions.h"
#include "utils/distribute/coordinator/messages.h"
#include "utils/distribute/coordinator/variable_client.h"
#include "utils/distribute/custom_loop/trackable.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/distribute/shards.h"

namespace official::coordinator {

struct CoordinatorOptions {
  // The devices of each worker, on all tasks the same: num_replicas_in_sync of a step.
  int num_devices = 1;
  std::string device_kind = "cpu";     // of those
  size_t queue_capacity = 256 * 1024;  // functions that may wait for a worker
  // The job fails if it is without any worker for so long.
  std::chrono::seconds worker_timeout = std::chrono::hours(1);
  uint64_t seed = 1;  // of the initial values of variables
  // The partitioner divides variables among parameter servers, such as MinSizePartitioner; null: each is whole on one.
  distribute::Partitioner variable_partitioner = nullptr;
};

class ClusterCoordinator : public distribute::Trackable {
 public:
  // The arguments must outlive the coordinator.
  ClusterCoordinator(const Functions& functions, distribute::ParameterServers& servers,
                     const CoordinatorOptions& options);
  // Functions that wait are cancelled.
  ~ClusterCoordinator() override;

  // The number of this coordinator among those of the process: no two have the same, also one after the other.
  int64_t id() const { return id_; }
  int num_workers() const { return servers_.num_workers() - 1; }
  // The number of devices of each worker, which run a step at the same time.
  int num_replicas_in_sync() const { return options_.num_devices; }

  // Makes the variables that a step has for inputs of these types, those of one device, which are not there yet, with
  // their initial values, and what the optimizer of the step needs. They, or their shards, are placed on the parameter
  // servers in turn; what is read and written here is the whole variable. Unavailable, here and in all functions below,
  // if a parameter server is lost: the job is to be started again, and to restore a checkpoint.
  absl::Status CreateVariables(const std::string& step, absl::Span<const compute::TensorType> inputs);
  // Return and overwrite the value of a variable; NotFound if there is none of this name.
  absl::StatusOr<compute::Tensor> ReadVariable(const std::string& name);
  absl::Status AssignVariable(const std::string& name, const compute::Tensor& value);

  // Gives each worker a data set, or values, of its own: what is registered under the name is called on the worker
  // before it runs further functions, and again when it comes back after it was lost. An error of it is one of the
  // function that the worker was to run.
  void CreatePerWorkerDataset(const std::string& name);
  void CreatePerWorkerValues(const std::string& function, absl::Span<const compute::Tensor> arguments = {});

  // Lets some worker run a function. Returns at once, unless the queue of functions is full. A function is run at least
  // once: when its worker is lost, by another one. Returns the first error of a function that no call has returned yet,
  // as Join.
  absl::StatusOr<RemoteValue> Schedule(const std::string& function, absl::Span<const compute::Tensor> arguments = {});
  // Waits until all scheduled functions have been run. Returns the first error of a function that no call has returned
  // yet; those that wait are then Cancelled: "The corresponding function is cancelled. Please reschedule the function."
  // Waits for workers that are lost to come back if none is left; DeadlineExceeded after worker_timeout.
  absl::Status Join();
  // Returns true if all scheduled functions have been run, without waiting; errors as Join.
  absl::StatusOr<bool> Done();
  // Waits until the function has been run, and returns its results or its error.
  absl::StatusOr<std::vector<compute::Tensor>> Fetch(const RemoteValue& value);

  // Ends the job: waits until the workers have left the parameter servers. No function is scheduled after it.
  absl::Status Finish();

  // For checkpoints.
  absl::StatusOr<std::vector<std::string>> TrackedNames() override;
  absl::StatusOr<compute::Tensor> ReadTracked(const std::string& name) override { return ReadVariable(name); }
  absl::Status RestoreVariables(distribute::ReadVariableFn read) override;
  bool is_chief() const override { return true; }
  absl::StatusOr<std::string> FromChief(const absl::StatusOr<std::string>& own) override { return own; }

 private:
  // Workers are named by their number in the exchange.

  // Gives a worker functions to run, and goes on when it comes back after a loss, until the queue is closed.
  void Dispatch(int worker);
  // Lets the worker run functions. OK once the queue is closed, Unavailable if the worker is lost; else an error of the
  // job.
  absl::Status RunFunctions(int worker);
  // Waits until a worker that is lost takes part again, or the queue is closed.
  absl::Status WaitForReturn(int worker);
  // Makes the resources after the first `num_made` on the worker, and runs the function. The error is one of the
  // exchange, as those of RunFunctions; `answer` has that of the function.
  absl::Status Run(int worker, const Closure& closure, size_t& num_made, WorkerAnswer& answer);
  absl::Status Ask(int worker, const WorkerRequest& request, WorkerAnswer& answer);
  void SetPresent(int worker, bool present);
  // DeadlineExceeded if there has been none for too long.
  absl::Status CheckPresence();
  // Returns "worker 1 at 10.0.0.1:2222, worker 2 at 10.0.0.2:2222".
  std::string WorkerNames() const;

  // Assigns to variables what read_ has of them.
  absl::Status Restore(absl::Span<const std::string> names);
  // An error of the exchange is one of the job.
  static absl::Status Failed(const absl::Status& status);

  const int64_t id_;
  const Functions& functions_;
  distribute::ParameterServers& servers_;
  const CoordinatorOptions options_;
  VariableClient client_;
  distribute::ReadVariableFn read_;  // null: variables begin with their initial values
  ClosureQueue queue_;
  std::mutex mutex_;
  std::vector<WorkerRequest> resources_;  // per-worker data sets and values
  std::set<int> present_;                 // the workers that are not lost
  std::chrono::steady_clock::time_point alone_since_ = std::chrono::steady_clock::now();
  std::vector<std::jthread> threads_;  // of the workers
};

}  // namespace official::coordinator
