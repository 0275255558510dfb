#include "utils/distribute/cross_device_ops.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::distribute {

using compute::Tensor;

absl::StatusOr<std::vector<Tensor>> CrossDeviceOps::BatchReduce(ReduceOp op,
                                                                absl::Span<const std::vector<Tensor>> values) {
  std::vector<Tensor> results;
  for (const std::vector<Tensor>& of_replicas : values) {
    ASSIGN_OR_RETURN(Tensor result, Reduce(op, of_replicas));
    results.push_back(std::move(result));
  }
  return results;
}

absl::StatusOr<std::vector<Tensor>> CrossDeviceOps::Broadcast(const Tensor& value, int num_replicas) {
  return std::vector<Tensor>(num_replicas, value);
}

absl::Status CheckReduced(const Tensor& result, const compute::TensorType& type) {
  if (result.type() == type) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cross_device_ops have returned ", result.type().ToString(),
                                                 " for values of type ", type.ToString(),
                                                 "; a reduced value must have the type of the replicas' values"));
}

}  // namespace official::distribute
