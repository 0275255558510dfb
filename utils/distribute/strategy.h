// Strategy: the devices on which a model trains, as tf.distribute has it. OneDevice is one device; Mirrored keeps a
// copy of the variables on each of several devices, gives each its share of every batch and sums the gradients. Devices
// that compute in the same memory, the CPU's, share the variables, and each updates a part of them.
//
// A job has a fixed number of replicas, whoever holds them: with several workers, each has a Strategy with some of them
// on its own devices. Numbers depend on the replicas alone, so any workers end with the same bits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/kernel/device.h"
#include "utils/distribute/cross_device_ops.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/distribute/worker_sum.h"
#include "utils/distribute/worker_summer.h"

namespace official::distribute {

// The workers of a job.
struct Workers {
  Exchange* exchange;                    // must outlive the strategy
  std::vector<compute::Share> replicas;  // that each holds, by worker: at least one, in ascending order
  CollectiveCommunication communication = CollectiveCommunication::kAuto;
};

// The tasks of a job with parameter servers: each worker has replicas of its own, which are in sync with no others.
struct ServerTasks {
  Exchange* exchange;  // must outlive the strategy
  int num_servers;     // the last tasks of the exchange
};

struct StrategyOptions {
  std::string name = "";  // TensorFlow's; empty: the one that the number of replicas and workers has by default
  std::string device_kind = "cpu";          // or, once its backend is loaded, compute::kCudaKind or kPjrtKind
  int num_replicas = 1;                     // of all workers together; with `servers` of this task
  std::optional<Workers> workers = {};      // where this process is not the only one
  std::optional<ServerTasks> servers = {};  // instead of `workers`: this process is one of these tasks
  // Which devices of the kind the local replicas compute on, as many; empty: the first ones.
  std::vector<int> device_indices = {};
  int num_threads = 0;  // of all CPU devices together; 0: all cores
  // The algorithm by which several devices sum: hierarchical_copy, reduction_to_one_device or the one that the kind of
  // device brings along, on GPUs nccl, which is the default where there is one.
  std::optional<std::string> all_reduce_alg = {};
  // Sums instead of an algorithm, in one process whose devices compute in the host's memory: all gradients of a step in
  // one BatchReduce, unless num_packs says otherwise.
  std::shared_ptr<CrossDeviceOps> cross_device_ops = nullptr;
  // The number of packs in which gradients are summed; 0: each gradient is one. Without, the kind of device decides.
  std::optional<int> num_packs = {};
  // A device that has waited this long for the others' gradients ends the step.
  std::chrono::seconds all_reduce_timeout = std::chrono::minutes(10);
  // Ends the process where something waits for sums that NCCL does not end after an error, which this is called with,
  // on any thread; null: with the error in the log and its exit status (misc::ExitCode).
  std::function<void(const absl::Status& error)> end_process = nullptr;
  bool allow_tf32 = false;  // on GPUs: float32 matrix products and convolutions may be computed in TF32
  compute::Recordings recordings = compute::Recordings::kMust;  // on GPUs: CUDA graphs
};

class Strategy {
 public:
  // Returns InvalidArgument for no device or one twice, and for an algorithm, or cross_device_ops, that the devices do
  // not have, or that several workers cannot sum with; else errors of a device or the group.
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(const StrategyOptions& options);
  ~Strategy();

  // The name in TensorFlow: "one_device", "mirrored", "central_storage", "parameter_server" or, by default with several
  // workers, "multi_worker_mirrored".
  const std::string& name() const { return name_; }
  // The number of replicas of all workers together: with this number each step is divided and summed.
  int num_replicas_in_sync() const { return num_replicas_in_sync_; }
  // The replicas that this worker holds. In what follows they are counted from 0: local replica r is replica
  // local_replicas().begin + r of the job.
  const compute::Share& local_replicas() const { return local_replicas_; }
  int num_local_replicas() const { return static_cast<int>(devices_.size()); }
  // True if other workers compute parts of the same steps.
  bool has_other_workers() const { return workers_.has_value(); }
  // The replicas that each worker holds, by worker, and the number of this one among the workers.
  std::vector<compute::Share> replicas_of_workers() const {
    return workers_ ? workers_->replicas : std::vector<compute::Share>{local_replicas_};
  }
  int worker() const { return workers_ ? workers_->exchange->worker() : 0; }
  // Returns the tasks of a job with parameter servers, where a worker trains by itself; else null.
  ParameterServers* servers() const { return servers_.get(); }
  // True for the worker that decides, and reads and writes the directory of the run: the first.
  bool is_chief() const { return exchange() == nullptr || exchange()->worker() == 0; }
  bool shares_memory() const { return num_local_replicas() > 1 && device(0).uses_host_memory(); }
  compute::Device& device(int local_replica) const { return *devices_[local_replica]; }
  // Returns what the options have; null: an algorithm sums.
  CrossDeviceOps* cross_device_ops() const { return cross_device_ops_.get(); }
  // The packs in which the devices sum gradients; without, as many as there are devices.
  const std::optional<compute::PackSizes>& pack_sizes() const { return pack_sizes_; }
  // Returns the costs of the sums with the other workers so far; zeros if there are none.
  SumCosts CostsOfWorkerSums() const;
  // Returns a text such as "cpu:0 (1 thread, AVX-512), cpu:1 (1 thread, AVX-512)".
  std::string Description() const;

  // Returns what each worker gives, by worker. All workers call it at the same point, between their programs. Errors:
  // those of Exchange::Receive.
  absl::StatusOr<std::vector<std::string>> GatherBytes(absl::string_view own) const;
  // Returns, likewise, what the chief gives, or its error. What others give is not looked at. Parameter servers get it,
  // too.
  absl::StatusOr<std::string> FromChief(absl::StatusOr<std::string> own) const;
  // Returns how long this worker has waited for others: for their parts of sums in the host's memory, and in what
  // follows.
  double SecondsOfWaiting() const;
  // Returns "worker 2 at 10.0.0.1:2222"; there must be other workers.
  std::string NameOfWorker(int worker) const { return workers_->exchange->NameOf(worker); }
  // True on the chief if workers that came late wait to take part.
  bool HasLateWorkers() const { return workers_ && !workers_->exchange->Late().empty(); }
  // True if this worker has come into a job that had begun: the chief sends it nothing of the beginning.
  bool is_back() const { return servers_ != nullptr && servers_->exchange().incarnation() > 0; }
  // Returns OK, or Cancelled once another worker has failed or is lost, without waiting for one.
  absl::Status CheckWorkers() { return workers_ ? workers_->exchange->Check() : absl::OkStatus(); }
  // Ends what the other workers wait for, now and later, since this one has failed for this reason.
  void Fail(absl::string_view reason) {
    if (exchange() != nullptr) exchange()->Fail(reason);
  }
  // Returns, likewise, the numbers of all replicas in their order, as many of each, of which `own` are those of the
  // local ones. Where this worker is the only one, that is all.
  template <typename T>
  absl::StatusOr<std::vector<T>> Gather(std::vector<T> own) const;
  // Calls f(replica) for every local replica at the same time, each always on the same thread, for 0 the caller's.
  // Returns when all have returned, with the error of the one that failed first, or Cancelled only if there is no
  // other. When one fails, the others stop waiting for its gradients. If that has broken the devices' connections
  // (nccl), all later calls fail.
  absl::Status Run(absl::FunctionRef<absl::Status(int local_replica)> f) {
    return group_ == nullptr ? f(0) : RunOnThreads(f);
  }
  // Calls f() on the thread of one local replica, even when the connections are broken, and returns its status.
  absl::Status RunAlone(int local_replica, absl::FunctionRef<absl::Status()> f);

 private:
  class Thread;

  Strategy() = default;
  // The exchange with the other tasks of the job; null: there are none.
  Exchange* exchange() const {
    return workers_ ? workers_->exchange : servers_ != nullptr ? &servers_->exchange() : nullptr;
  }
  absl::Status MakeDevices(const StrategyOptions& options);
  // Makes the group of the local devices, which sums with the other workers.
  absl::Status MakeWorkerGroup(const compute::DeviceKind& kind);
  // Returns the bytes of all replicas, as many of each.
  absl::StatusOr<std::string> GatherOfReplicas(absl::string_view own) const;
  absl::Status RunOnThreads(absl::FunctionRef<absl::Status(int local_replica)> f);
  void Report(const absl::Status& status);

  std::string name_;
  int num_replicas_in_sync_ = 1;
  compute::Share local_replicas_{0, 1};
  std::optional<Workers> workers_;
  std::unique_ptr<ParameterServers> servers_;
  std::chrono::seconds timeout_{};
  mutable double seconds_of_values_ = 0;  // in which this worker has waited for those that others give
  std::vector<std::unique_ptr<compute::Device>> devices_;
  std::shared_ptr<CrossDeviceOps> cross_device_ops_;
  std::unique_ptr<compute::CommunicatorGroup> group_;  // if there are several replicas
  const WorkerSummer* worker_summer_ = nullptr;        // the group's, if workers sum in the host's memory
  std::vector<std::unique_ptr<Thread>> threads_;       // of local replicas 1, 2, ...
  std::mutex mutex_;
  absl::Status first_error_;
  absl::Status broken_;  // the reason why nothing can run any more
  std::optional<compute::PackSizes> pack_sizes_;
};

template <typename T>
absl::StatusOr<std::vector<T>> Strategy::Gather(std::vector<T> own) const {
  if (!workers_) return own;
  const absl::StatusOr<std::string> bytes =
      GatherOfReplicas({reinterpret_cast<const char*>(own.data()), own.size() * sizeof(T)});
  if (!bytes.ok()) return bytes.status();
  std::vector<T> all(bytes->size() / sizeof(T));
  if (!all.empty()) std::memcpy(all.data(), bytes->data(), bytes->size());
  return all;
}

// Returns the strategy of upstream's get_distribution_strategy(num_gpus, all_reduce_alg)
// (official/utils/misc/distribution_utils.py): without GPUs one_device on the CPU, with one one_device on it, with more
// mirrored. The CUDA backend must be loaded if there are any (compute::LoadCudaBackend). Errors: those of Create.
absl::StatusOr<std::unique_ptr<Strategy>> GetDistributionStrategy(int num_gpus,
                                                                  std::optional<std::string> all_reduce_alg = {});

}  // namespace official::distribute
