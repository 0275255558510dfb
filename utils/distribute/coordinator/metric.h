// MeanMetric: the mean of what all workers give in many steps, as tf.keras.metrics.Mean made in the scope of a
// ParameterServerStrategy: its variables are on the parameter servers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/graph/graph.h"
#include "utils/distribute/coordinator/cluster_coordinator.h"
#include "utils/distribute/custom_loop/mean_metric.h"
#include "utils/distribute/custom_loop/replica_context.h"

namespace official::coordinator {

class MeanMetric {
 public:
  // Its variables are <name>/total and <name>/count.
  explicit MeanMetric(const std::string& name);

  // In a step, adds what distribute::MeanUpdateOf returns. ClusterCoordinator::CreateVariables makes the variables.
  void UpdateState(distribute::ReplicaContext& context, compute::Value values, compute::Value sample_weight = {}) const;
  // The same with sums that are there already.
  void AddSums(distribute::ReplicaContext& context, const distribute::MeanUpdate& sums) const;
  // In the program: returns the mean since the state was last reset; 0 if there are no values. A step that was run
  // twice, since a worker was lost, counts twice.
  absl::StatusOr<float> Result(ClusterCoordinator& coordinator) const;
  absl::Status ResetState(ClusterCoordinator& coordinator) const;

 private:
  const compute::VariableSpec total_, count_;
};

}  // namespace official::coordinator
