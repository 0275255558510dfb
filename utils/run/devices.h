// The devices of a run, by its flags and what the machine has.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "utils/distribute/strategy.h"
#include "utils/run/config.h"

namespace official::run {

struct Devices {
  std::string kind;
  std::string strategy;  // "one_device", "mirrored", "multi_worker_mirrored"
  int num_replicas = 1;
  int replica_batch = 0;  // examples of a batch for each replica
};

// Returns the devices that --num_gpus and --num_cpu_devices ask for. InvalidArgument if there are not so many GPUs,
// --distribution_strategy is not for so many devices, or --batch_size cannot be divided among them.
absl::StatusOr<Devices> DevicesFor(const Config& config);

absl::StatusOr<std::unique_ptr<distribute::Strategy>> MakeStrategy(const Config& config, const Devices& devices);

}  // namespace official::run
