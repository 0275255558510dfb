#include "utils/run/coordinator.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/flags/shared_groups.h"
#include "utils/logs/log.h"
#include "utils/misc/distribution_utils.h"
#include "utils/misc/gpu_count.h"
#include "utils/run/cluster.h"
#include "utils/run/devices.h"
#include "utils/run/usable_gpus.h"

namespace official::run {
namespace {

// Those of each worker, as all tasks know them: the coordinator may be on a machine without GPUs.
absl::StatusOr<Devices> DevicesOfWorkers(const Config& config) {
  Devices devices = {.kind = "cpu", .strategy = "parameter_server", .num_replicas = config.performance.num_cpu_devices};
  const int num_gpus = config.base.num_gpus.value_or(0);
  RETURN_IF_ERROR(CheckOneKind(config));
  if (num_gpus == 0) return devices;
  if (num_gpus < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--num_gpus=", num_gpus,
                     ": the coordinator has to know how many GPUs each worker has; give their number, the same on all "
                     "tasks"));
  }
  devices.kind = std::string(DeviceKindFor(num_gpus));
  devices.num_replicas = num_gpus;
  return devices;
}

// InvalidArgument if GPUs are wanted that are not there.
absl::Status FindGpus(const Devices& wanted) {
  if (wanted.kind != "cpu" && wanted.num_replicas > 1) misc::LoadKernelsAtOnce();
  return misc::GetNumGpus(wanted.kind == "cpu" ? 0 : wanted.num_replicas, UsableGpus).status();
}

}  // namespace

flags::FlagSpec GpusOfWorkersFlag() {
  flags::FlagSpec flag = flags::SharedFlag("num_gpus");
  flag.range = flags::AtLeast(0);
  flag.unset_means = "0";
  flag.help = "Number of GPUs of each worker, on all tasks the same: 0 trains on its CPU devices.";
  return flag;
}

absl::Status RunCoordinated(const Config& config, const coordinator::Functions& functions,
                            coordinator::CoordinatorOptions options, const coordinator::Program& program) {
  ASSIGN_OR_RETURN(const Devices of_workers, DevicesOfWorkers(config));
  if (options.num_devices != 1 && options.num_devices != of_workers.num_replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("CoordinatorOptions::num_devices is ", options.num_devices, ", and ",
                     of_workers.kind == "cpu" ? "--num_cpu_devices=" : "--num_gpus=", of_workers.num_replicas,
                     "; leave it to the flag, or make both the same"));
  }
  options.num_devices = of_workers.num_replicas;
  options.device_kind = of_workers.kind;
  ASSIGN_OR_RETURN(const Cluster cluster, FindCluster(config));
  // The coordinator and the servers need no GPU.
  if (!cluster.launch || (cluster.worker > 0 && !cluster.is_server())) RETURN_IF_ERROR(FindGpus(of_workers));
  if (!cluster.launch) {
    LOG(INFO) << "there is no cluster: the coordinator, a worker and a ps are threads of this process";
    return coordinator::RunInProcess(/*num_workers=*/1, /*num_servers=*/1, functions, options, program);
  }
  if (cluster.is_evaluator) {
    return absl::InvalidArgumentError(
        absl::StrCat("Unrecognized task_type: 'evaluator', valid task types are: \"chief\", \"worker\", \"ps\". "
                     "To do all in this process, start it without: ",
                     cluster.launch->alone));
  }
  const distribute::ClusterSpec& spec = cluster.launch->started.cluster;
  if (spec.NumTasks(distribute::kChief) + spec.NumTasks(distribute::kMaster) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(cluster.launch->launcher, " describes no chief, which is the coordinator; give the cluster one"));
  }
  RETURN_IF_ERROR(coordinator::CheckTasks(cluster.num_workers - 1, cluster.num_servers));
  ASSIGN_OR_RETURN(const std::unique_ptr<distribute::Exchange> exchange, Connect(config, cluster, of_workers));
  const absl::Status status = coordinator::RunTask(*exchange, cluster.num_servers, functions, options, program);
  if (status.ok()) exchange->Finish();
  return status;
}

}  // namespace official::run
