#include "utils/distribute/coordinator/metric.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::coordinator {
namespace {

using compute::Tensor;

compute::VariableSpec Sum(const std::string& name) {
  return {name, {compute::DType::kFloat32, {}}, compute::Initializer::Zeros(), /*trainable=*/false};
}

}  // namespace

MeanMetric::MeanMetric(const std::string& name)
    : total_(Sum(absl::StrCat(name, "/total"))), count_(Sum(absl::StrCat(name, "/count"))) {}

void MeanMetric::UpdateState(distribute::ReplicaContext& context, compute::Value values,
                             compute::Value sample_weight) const {
  AddSums(context, distribute::MeanUpdateOf(values, sample_weight));
}

void MeanMetric::AddSums(distribute::ReplicaContext& context, const distribute::MeanUpdate& sums) const {
  if (!sums.total) return;
  context.AssignAdd(total_, sums.total);
  context.AssignAdd(count_, sums.count);
}

absl::StatusOr<float> MeanMetric::Result(ClusterCoordinator& coordinator) const {
  ASSIGN_OR_RETURN(const Tensor total, coordinator.ReadVariable(total_.name));
  ASSIGN_OR_RETURN(const Tensor count, coordinator.ReadVariable(count_.name));
  return count.scalar<float>() == 0 ? 0 : total.scalar<float>() / count.scalar<float>();
}

absl::Status MeanMetric::ResetState(ClusterCoordinator& coordinator) const {
  for (const compute::VariableSpec* const sum : {&total_, &count_}) {
    RETURN_IF_ERROR(coordinator.AssignVariable(sum->name, Tensor::Scalar(0.0f)));
  }
  return absl::OkStatus();
}

}  // namespace official::coordinator
