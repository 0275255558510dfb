#include "utils/run/coordinator.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/run/cluster.h"
#include "utils/run/devices.h"

namespace official::run {

absl::Status RunCoordinated(const Config& config, const coordinator::Functions& functions,
                            coordinator::CoordinatorOptions options, const coordinator::Program& program) {
  const int num_devices = config.performance.num_cpu_devices;
  if (options.num_devices != 1 && options.num_devices != num_devices) {
    return absl::InvalidArgumentError(absl::StrCat("CoordinatorOptions::num_devices is ", options.num_devices,
                                                   ", and --num_cpu_devices=", num_devices,
                                                   "; leave it to the flag, or make both the same"));
  }
  options.num_devices = num_devices;
  ASSIGN_OR_RETURN(const Cluster cluster, FindCluster(config));
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
  const Devices devices = {.kind = "cpu",
                           .strategy = "parameter_server",
                           .num_replicas = options.num_devices,
                           .num_servers = cluster.num_servers};
  ASSIGN_OR_RETURN(const std::unique_ptr<distribute::Exchange> exchange, Connect(config, cluster, devices));
  const absl::Status status = coordinator::RunTask(*exchange, cluster.num_servers, functions, options, program);
  if (status.ok()) exchange->Finish();
  return status;
}

}  // namespace official::run
