#include "utils/run/devices.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/logs/log.h"
#include "utils/misc/distribution_utils.h"
#include "utils/misc/gpu_count.h"
#include "utils/run/end_process.h"
#include "utils/run/pjrt_plugin.h"
#include "utils/run/server_flags.h"
#include "utils/run/usable_gpus.h"

namespace official::run {

absl::Status CheckOneKind(const Config& config) {
  const int num_gpus = config.base.num_gpus.value_or(0), num_cpu_devices = config.performance.num_cpu_devices;
  if (num_gpus == 0 || num_cpu_devices == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--num_cpu_devices=", num_cpu_devices, " cannot be combined with --num_gpus=", num_gpus, "; use one of them"));
}

namespace {

// The devices of this process, by the flags and what the machine has.
absl::StatusOr<misc::NamedDevices> WantedDevices(const Config& config) {
  misc::NamedDevices wanted;
  if (config.performance.devices) {
    ASSIGN_OR_RETURN(wanted, misc::ParseDevices(*config.performance.devices));
    if (!wanted.are_gpus) return wanted;
    const int last = *std::max_element(wanted.indices.begin(), wanted.indices.end());
    const misc::VisibleGpus gpus = UsableGpus();
    if (last < gpus.count) return wanted;
    const std::string shows = gpus.count == 0 ? absl::StrCat("has no GPU to train on (", gpus.why_none, ")")
                                              : absl::StrCat("shows ", gpus.count, ", from gpu:0 on");
    return absl::InvalidArgumentError(
        absl::StrCat("--devices=", *config.performance.devices, ": there is no gpu:", last, ": this machine ", shows));
  }
  RETURN_IF_ERROR(CheckOneKind(config));
  // Several CPU devices are a wish for the CPU.
  const std::optional<int> wanted_gpus = config.performance.num_cpu_devices > 1 ? 0 : config.base.num_gpus;
  ASSIGN_OR_RETURN(const int num_gpus, misc::GetNumGpus(wanted_gpus, UsableGpus));
  wanted.are_gpus = num_gpus > 0;
  wanted.indices.resize(num_gpus > 0 ? num_gpus : config.performance.num_cpu_devices);
  std::iota(wanted.indices.begin(), wanted.indices.end(), 0);
  return wanted;
}

// Those of a PJRT plugin, which this loads.
absl::StatusOr<Devices> DevicesOfPlugin(const Config& config, int num_workers, int num_servers) {
  if (num_workers > 1 || num_servers > 0) {
    return absl::InvalidArgumentError(
        "--distribution_strategy=tpu: this run has several processes, and such devices train in one; leave one of the "
        "two out");
  }
  if (config.performance.intra_op_parallelism_threads > 0) {
    LOG(WARNING) << "--intra_op_parallelism_threads=" << config.performance.intra_op_parallelism_threads
                 << " does not change how --distribution_strategy=tpu computes: the plugin decides how many threads it "
                    "uses";
  }
  ASSIGN_OR_RETURN(const int num_devices, UsePjrtPlugin(config.performance, config.program));
  Devices devices = {.kind = compute::kPjrtKind, .strategy = "tpu"};
  devices.num_replicas = config.cluster.num_replicas.value_or(num_devices);
  if (devices.num_replicas > num_devices) {
    return absl::InvalidArgumentError(absl::StrCat("--num_replicas=", devices.num_replicas, ": the PJRT plugin has ",
                                                   num_devices, " devices; use at most that many"));
  }
  ASSIGN_OR_RETURN(devices.replica_batch, misc::PerDeviceBatchSize(config.base.batch_size, devices.num_replicas,
                                                                   "devices", config.least_batch_size));
  return devices;
}

// The number of replicas of all workers, each of which has `num_devices` if it is not told otherwise.
absl::StatusOr<int> NumReplicas(const Config& config, int num_workers, int num_gpus, int num_devices) {
  const int all_devices = num_workers * num_devices;
  const int num_replicas = config.cluster.num_replicas.value_or(all_devices);
  const auto error = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--num_replicas=", num_replicas, " ", why));
  };
  if (num_replicas < num_workers) {
    return error(absl::StrCat("is less than the ", num_workers, " workers, of which each needs one; use at least ",
                              num_workers, ", or fewer workers"));
  }
  // A GPU has one replica; logical CPU devices are made as they are needed.
  const char* const flag = config.performance.devices               ? "--devices"
                           : num_gpus > 0                           ? "--num_gpus"
                           : config.performance.num_cpu_devices > 1 ? "--num_cpu_devices"
                                                                    : nullptr;
  if (flag == nullptr || num_replicas == all_devices) return num_replicas;
  return error(absl::StrCat("contradicts ", flag, ", which makes ", num_devices, " on each of ", num_workers,
                            num_workers == 1 ? " worker" : " workers", "; leave one of the two out"));
}

// Returns true if several GPUs may sum together, of this process or of several; those of --num_gpus=-1 are not counted.
bool MaySumOnGpus(const Config& config, int num_workers) {
  if (config.base.num_gpus == 0) return false;
  return num_workers > 1 || misc::AskForSeveralGpus(config.base.num_gpus, config.performance.devices,
                                                    [] { return misc::VisibleGpus{.count = 2}; });
}

// What messages call replicas of these.
const char* NameOfReplicas(const Devices& devices, int num_workers) {
  return num_workers > 1 ? "replicas" : devices.kind == "cpu" ? "CPU devices" : "GPUs";
}

}  // namespace

absl::StatusOr<Devices> ReplicasFor(const Config& config, int num_workers, int num_servers) {
  if (MaySumOnGpus(config, num_workers)) misc::LoadKernelsAtOnce();
  ASSIGN_OR_RETURN(const misc::NamedDevices wanted, WantedDevices(config));
  const auto num_devices = static_cast<int>(wanted.indices.size());
  const int num_gpus = wanted.are_gpus ? num_devices : 0;
  Devices devices = {.kind = std::string(DeviceKindFor(num_gpus)), .strategy = "", .num_servers = num_servers};
  if (config.performance.devices && wanted.are_gpus) devices.indices = wanted.indices;
  ASSIGN_OR_RETURN(devices.num_replicas, NumReplicas(config, num_workers, num_gpus, num_devices));
  if (config.performance.tf32 && num_gpus == 0) {
    LOG(WARNING) << "--tf32 changes nothing without a GPU: the CPU computes fp32 in full precision";
  }
  if (num_servers > 0) {
    devices.strategy = "parameter_server";
    return devices;
  }
  ASSIGN_OR_RETURN(devices.strategy, misc::StrategyName(config.performance.distribution_strategy, num_workers,
                                                        devices.num_replicas, NameOfReplicas(devices, num_workers)));
  return devices;
}

absl::StatusOr<Devices> DevicesFor(const Config& config, int num_workers, int num_servers, bool is_server) {
  // A server makes its updates one after the other, in the memory of the host.
  if (is_server) {
    return Devices{.kind = "cpu",
                   .strategy = "parameter_server",
                   .replica_batch = config.base.batch_size,
                   .num_servers = num_servers};
  }
  if (config.performance.distribution_strategy == "tpu") return DevicesOfPlugin(config, num_workers, num_servers);
  if (num_servers > 0) num_workers = 1;  // each trains by itself
  ASSIGN_OR_RETURN(Devices devices, ReplicasFor(config, num_workers, num_servers));
  ASSIGN_OR_RETURN(devices.replica_batch,
                   misc::PerDeviceBatchSize(config.base.batch_size, devices.num_replicas,
                                            NameOfReplicas(devices, num_workers), config.least_batch_size));
  if (KeepsVariablesOnHost(devices) && !config.base.eval_only) {
    RETURN_IF_ERROR(CheckServerFlags(config, [&](absl::string_view flag, absl::string_view advice) {
      return absl::InvalidArgumentError(
          absl::StrCat("--distribution_strategy=", config.performance.distribution_strategy,
                       " updates the variables of ", devices.num_replicas, " GPUs in the memory of the host, and ",
                       flag, " is not for that; ", advice, ", or --distribution_strategy=mirrored"));
    }));
    devices.num_servers = 1;
  }
  return devices;
}

bool KeepsVariablesOnHost(const Devices& devices) {
  return devices.strategy == "central_storage" && devices.kind != "cpu" && devices.num_replicas > 1;
}

absl::StatusOr<std::unique_ptr<distribute::Strategy>> MakeStrategy(const Config& config, const Devices& devices,
                                                                   distribute::Exchange* exchange,
                                                                   const std::function<void()>& before_end) {
  distribute::StrategyOptions options = {
      .name = devices.strategy,
      .device_kind = devices.kind,
      .num_replicas = devices.num_replicas,
      .device_indices = devices.indices,
      .num_threads = config.performance.intra_op_parallelism_threads,
      .all_reduce_alg = config.performance.all_reduce_alg,
      .num_packs = config.performance.num_packs,
      .all_reduce_timeout = std::chrono::seconds(config.performance.all_reduce_timeout_secs),
      .end_process = [program = config.program,
                      before_end](const absl::Status& error) { EndProcess(program, error, before_end); },
      .allow_tf32 = config.performance.tf32,
      .recordings = config.performance.cuda_graphs};
  if (exchange != nullptr && devices.num_servers > 0) {
    options.servers = distribute::ServerTasks{.exchange = exchange, .num_servers = devices.num_servers};
  } else if (exchange != nullptr) {
    options.workers = distribute::Workers{
        .exchange = exchange, .replicas = {}, .communication = config.cluster.collective_communication};
    for (int w = 0; w < exchange->num_workers(); ++w) {
      options.workers->replicas.push_back(compute::ShareOf(devices.num_replicas, w, exchange->num_workers()));
    }
  }
  return distribute::Strategy::Create(options);
}

}  // namespace official::run
