// ConnectedStrategy: the strategy of a program with a training loop of its own, in one process or on several workers.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/exchange.h"
#include "utils/distribute/strategy.h"
#include "utils/run/config.h"

namespace official::run {

class ConnectedStrategy {
 public:
  // Connects the workers that TF_CONFIG or another launcher describes, if there are several, each with --num_gpus GPUs
  // or --num_cpu_devices logical CPU devices: tf.distribute.MultiWorkerMirroredStrategy. A process alone has the
  // --distribution_strategy, by default one_device or mirrored. The other flags that it reads are
  // flags::ConnectionFlags({"workers", "collective_communication"}). InvalidArgument for less than one device or GPUs
  // that are not there, for another strategy than the devices can have, and in a task that is an evaluator or whose
  // cluster has parameter servers; else errors of FindCluster and Connect.
  static absl::StatusOr<std::unique_ptr<ConnectedStrategy>> Create(const Config& config);

  // There is none after TakeStrategy().
  distribute::Strategy& strategy() { return *strategy_; }
  // Hands the strategy over, for an Estimator or a keras::Model, which this must outlive.
  std::unique_ptr<distribute::Strategy> TakeStrategy() { return std::move(strategy_); }
  // Tells the other workers that this one is done, or has failed: then they fail, too. It must be called before this is
  // destroyed.
  void Finish(const absl::Status& status);

 private:
  std::unique_ptr<distribute::Exchange> exchange_;  // null: there are no other workers
  std::unique_ptr<distribute::Strategy> strategy_;
};

}  // namespace official::run
