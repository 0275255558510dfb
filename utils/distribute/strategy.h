// Strategy: the devices on which a model trains, as tf.distribute has it. OneDevice is one device; Mirrored keeps a
// copy of the variables on each of several devices, gives each its share of every batch and sums the gradients. Devices
// that compute in the same memory, the CPU's, share the variables, and each updates a part of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "utils/compute/kernel/device.h"

namespace official::distribute {

struct StrategyOptions {
  std::string device_kind = "cpu";
  int num_replicas = 1;
  int num_threads = 0;  // of all CPU devices together; 0: all cores
  // The algorithm by which several devices sum: hierarchical_copy, reduction_to_one_device or the one that the kind of
  // device brings along, on GPUs nccl, which is the default where there is one.
  std::optional<std::string> all_reduce_alg = {};
  // A device that has waited this long for the others' gradients ends the step.
  std::chrono::seconds all_reduce_timeout = std::chrono::minutes(10);
  bool allow_tf32 = false;  // on GPUs: float32 matrix products and convolutions may be computed in TF32
  compute::Recordings recordings = compute::Recordings::kMust;  // on GPUs: CUDA graphs
};

class Strategy {
 public:
  // Returns InvalidArgument for an algorithm that the devices do not have; else errors of a device or the group.
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(const StrategyOptions& options);
  ~Strategy();

  // The name in TensorFlow: "one_device" or "mirrored".
  absl::string_view name() const { return num_replicas() == 1 ? "one_device" : "mirrored"; }
  int num_replicas() const { return static_cast<int>(devices_.size()); }
  bool shares_memory() const { return num_replicas() > 1 && device(0).uses_host_memory(); }
  compute::Device& device(int replica) const { return *devices_[replica]; }
  // The packs in which the devices sum gradients; without, as many as there are devices.
  const std::optional<compute::PackSizes>& pack_sizes() const { return pack_sizes_; }
  // Returns a text such as "cpu:0 (1 thread, AVX-512), cpu:1 (1 thread, AVX-512)".
  std::string Description() const;

  // Calls f(replica) for every replica at the same time, each always on the same thread, for replica 0 the caller's.
  // Returns when all have returned, with the error of the one that failed first, or Cancelled only if there is no
  // other. When one fails, the others stop waiting for its gradients. If that has broken the devices' connections
  // (nccl), all later calls fail.
  absl::Status Run(absl::FunctionRef<absl::Status(int replica)> f) { return workers_.empty() ? f(0) : RunOnThreads(f); }
  // Calls f() on the thread of one replica, even when the connections are broken, and returns its status.
  absl::Status RunAlone(int replica, absl::FunctionRef<absl::Status()> f);

 private:
  class Worker;

  Strategy() = default;
  absl::Status RunOnThreads(absl::FunctionRef<absl::Status(int replica)> f);
  void Report(const absl::Status& status);

  std::vector<std::unique_ptr<compute::Device>> devices_;
  std::unique_ptr<compute::CommunicatorGroup> group_;  // of several devices
  std::vector<std::unique_ptr<Worker>> workers_;       // of replicas 1, 2, ...
  std::mutex mutex_;
  absl::Status first_error_;
  absl::Status broken_;  // the reason why nothing can run any more
  std::optional<compute::PackSizes> pack_sizes_;
};

}  // namespace official::distribute
