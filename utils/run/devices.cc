#include "utils/run/devices.h"

#include <chrono>
#include <optional>

#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/misc/distribution_utils.h"
#include "utils/run/usable_gpus.h"

namespace official::run {

absl::StatusOr<Devices> DevicesFor(const Config& config) {
  // Several CPU devices are a wish for the CPU.
  const std::optional<int> wanted_gpus = config.performance.num_cpu_devices > 1 ? 0 : config.base.num_gpus;
  ASSIGN_OR_RETURN(const int num_gpus, misc::GetNumGpus(wanted_gpus, UsableGpus));
  Devices devices;
  devices.kind = std::string(DeviceKindFor(num_gpus));
  devices.num_replicas = num_gpus > 0 ? num_gpus : config.performance.num_cpu_devices;
  if (config.performance.tf32 && num_gpus == 0) {
    LOG(WARNING) << "--tf32 changes nothing without a GPU: the CPU computes fp32 in full precision";
  }
  const char* const plural = num_gpus > 0 ? "GPUs" : "CPU devices";
  ASSIGN_OR_RETURN(devices.strategy,
                   misc::StrategyName(config.performance.distribution_strategy, devices.num_replicas, plural));
  ASSIGN_OR_RETURN(devices.replica_batch,
                   misc::PerDeviceBatchSize(config.base.batch_size, devices.num_replicas, plural));
  return devices;
}

absl::StatusOr<std::unique_ptr<distribute::Strategy>> MakeStrategy(const Config& config, const Devices& devices) {
  return distribute::Strategy::Create(
      {.name = devices.strategy,
       .device_kind = devices.kind,
       .num_replicas = devices.num_replicas,
       .num_threads = config.performance.intra_op_parallelism_threads,
       .all_reduce_alg = config.performance.all_reduce_alg,
       .all_reduce_timeout = std::chrono::seconds(config.performance.all_reduce_timeout_secs),
       .allow_tf32 = config.performance.tf32,
       .recordings = config.performance.cuda_graphs});
}

}  // namespace official::run
