#include "utils/run/strategy.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/run/cluster.h"
#include "utils/run/devices.h"

namespace official::run {

absl::StatusOr<std::unique_ptr<ConnectedStrategy>> ConnectedStrategy::Create(const Config& config) {
  const int num_cpu_devices = config.performance.num_cpu_devices;
  if (num_cpu_devices < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a strategy of ", num_cpu_devices, " devices; it needs at least 1"));
  }
  ASSIGN_OR_RETURN(const Cluster cluster, FindCluster(config));
  if (cluster.is_evaluator) {
    return absl::InvalidArgumentError(
        absl::StrCat("Unrecognized task_type: 'evaluator', valid task types are: \"chief\", \"worker\". To evaluate in "
                     "this process, start it without: ",
                     cluster.launch->alone));
  }
  if (cluster.num_servers > 0) {
    return absl::InvalidArgumentError(absl::StrCat(cluster.launch->launcher, " describes ", cluster.num_servers,
                                                   " ps, and a training loop of one's own has only workers; leave ps "
                                                   "out of the cluster, or train without: ",
                                                   cluster.launch->alone));
  }
  ASSIGN_OR_RETURN(const Devices devices, ReplicasFor(config, cluster.num_workers));
  if (KeepsVariablesOnHost(devices)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--distribution_strategy=", config.performance.distribution_strategy,
                     ": in a training loop of one's own it is "
                     "for CPU devices or one GPU, and this run has ",
                     devices.num_replicas, " GPUs; use --distribution_strategy=mirrored, which computes the same"));
  }
  auto connected = std::make_unique<ConnectedStrategy>();
  if (cluster.num_workers > 1) {
    ASSIGN_OR_RETURN(connected->exchange_, Connect(config, cluster, devices));
  }
  ASSIGN_OR_RETURN(connected->strategy_, MakeStrategy(config, devices, connected->exchange_.get()));
  return connected;
}

void ConnectedStrategy::Finish(const absl::Status& status) {
  if (exchange_ == nullptr) return;
  if (status.ok()) {
    exchange_->Finish();
  } else {
    exchange_->Fail(status.message());
  }
}

}  // namespace official::run
