// The devices of a run, by its flags and what the machine has.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/strategy.h"
#include "utils/run/config.h"

namespace official::run {

struct Devices {
  std::string kind;
  // "one_device", "mirrored", "central_storage", "multi_worker_mirrored", "parameter_server" or "tpu".
  std::string strategy;
  std::vector<int> indices = {};  // those of --devices; empty: the first ones
  int num_replicas = 1;           // of all workers together; with parameter servers, of each worker
  int replica_batch = 0;          // examples of a batch for each replica
  // Parameter servers; with them each worker may have other devices. With central_storage on several GPUs that train
  // one, which is in this process (host_server.h).
  int num_servers = 0;
};

// Returns InvalidArgument if a run is to have GPUs and several CPU devices.
absl::Status CheckOneKind(const Config& config);

// Returns the devices that --num_gpus, --num_cpu_devices and --num_replicas ask for. InvalidArgument if there are not
// so many GPUs, --distribution_strategy is not for so many devices or workers, some worker would have no replica,
// --batch_size cannot be divided among them, there are parameter servers and --num_replicas, or central_storage on
// several GPUs and flags that are not for it. With --distribution_strategy=tpu they are those of the PJRT plugin: the
// errors of UsePjrtPlugin. A parameter server has one CPU device, whatever the flags say of the workers'.
absl::StatusOr<Devices> DevicesFor(const Config& config, int num_workers = 1, int num_servers = 0,
                                   bool is_server = false);

// True for central_storage on several GPUs: each computes with a copy of the variables, which are in the memory of the
// host and updated there.
bool KeepsVariablesOnHost(const Devices& devices);

// Returns, likewise, the replicas of workers that train in step and their strategy, for a program whose batches are not
// --batch_size.
absl::StatusOr<Devices> ReplicasFor(const Config& config, int num_workers, int num_servers = 0);

// Returns the strategy of this process: with an exchange, which must outlive it, that of a worker with its part of the
// replicas, or of a parameter server. `before_end` is that of EndProcess, with which the strategy ends the process
// where GPUs hang.
absl::StatusOr<std::unique_ptr<distribute::Strategy>> MakeStrategy(
    const Config& config, const Devices& devices, distribute::Exchange* exchange = nullptr,
    const std::function<void()>& before_end = [] {});

}  // namespace official::run
