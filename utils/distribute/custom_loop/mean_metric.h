// MeanMetric: the mean of what the replicas give in many steps, as tf.keras.metrics.Mean. Of predictions that are right
// or wrong, 1 or 0, it is the accuracy.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/custom_loop/strategy_scope.h"

namespace official::distribute {

// A mean takes from float32 values of any shape, also none, two float32 scalars: their sum and their number.
// With a `sample_weight` (see AlignSampleWeight) each value counts as often as its weight says. Values of two or more
// dimensions more than weights, which are no scalar, are averaged over their last dimensions first. Both are invalid if
// the values or weights are. Source: tf.keras.metrics.Mean.
struct MeanUpdate {
  compute::Value total, count;
};
MeanUpdate MeanUpdateOf(compute::Value values, compute::Value sample_weight = {});

class MeanMetric {
 public:
  // Makes the on-read variables <name>/total and <name>/count, which sum over the replicas. Errors: those of
  // StrategyScope::CreateVariable. The metric must not outlive the scope.
  static absl::StatusOr<MeanMetric> Create(StrategyScope& scope, const std::string& name);

  // Adds, in a replica, MeanUpdateOf the values.
  void UpdateState(ReplicaContext& context, compute::Value values, compute::Value sample_weight = {}) const;
  // Returns the mean over the values of all replicas since the state was last reset, each with its weight; 0 if there
  // are none. With several workers all of them call it at the same point.
  absl::StatusOr<float> Result() const;
  absl::Status ResetState();

 private:
  MeanMetric(DistributedVariable& total, DistributedVariable& count) : total_(total), count_(count) {}

  DistributedVariable& total_;
  DistributedVariable& count_;
};

}  // namespace official::distribute
