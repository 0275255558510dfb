#include "utils/distribute/custom_loop/mean_metric.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/distribute/custom_loop/sample_weight.h"

namespace official::distribute {

using compute::Tensor;
using compute::Value;

absl::StatusOr<MeanMetric> MeanMetric::Create(StrategyScope& scope, const std::string& name) {
  const auto make = [&](absl::string_view part) {
    return scope.CreateVariable({.name = absl::StrCat(name, "/", part),
                                 .initial_value = Tensor::Scalar(0.0f),
                                 .synchronization = VariableSynchronization::kOnRead,
                                 .aggregation = VariableAggregation::kSum});
  };
  ASSIGN_OR_RETURN(DistributedVariable* const total, make("total"));
  ASSIGN_OR_RETURN(DistributedVariable* const count, make("count"));
  return MeanMetric(*total, *count);
}

MeanUpdate MeanUpdateOf(Value values, Value sample_weight) {
  if (!values) return {};
  Value count = values.graph()->Constant(Tensor::Scalar(static_cast<float>(values.shape().num_elements())));
  if (sample_weight) {
    const int rank = sample_weight.shape().rank();
    if (rank > 0 && values.shape().rank() - rank > 1) {
      std::vector<int64_t> axes(values.shape().rank() - rank);
      std::iota(axes.begin(), axes.end(), rank);
      values = compute::Mean(values, axes);
    }
    sample_weight = AlignSampleWeight(sample_weight, values);
    if (!sample_weight) return {};
    count = compute::Sum(compute::BroadcastTo(sample_weight, values.shape()));
    values = compute::Mul(values, sample_weight);
  }
  return {compute::Sum(values), count};
}

void MeanMetric::UpdateState(ReplicaContext& context, Value values, Value sample_weight) const {
  const MeanUpdate update = MeanUpdateOf(values, sample_weight);
  if (!update.total) return;
  context.AssignAdd(total_, update.total);
  context.AssignAdd(count_, update.count);
}

absl::StatusOr<float> MeanMetric::Result() const {
  ASSIGN_OR_RETURN(const Tensor total, total_.Read());
  ASSIGN_OR_RETURN(const Tensor count, count_.Read());
  return count.scalar<float>() == 0 ? 0 : total.scalar<float>() / count.scalar<float>();
}

absl::Status MeanMetric::ResetState() {
  RETURN_IF_ERROR(total_.Assign(Tensor::Scalar(0.0f)));
  return count_.Assign(Tensor::Scalar(0.0f));
}

}  // namespace official::distribute
