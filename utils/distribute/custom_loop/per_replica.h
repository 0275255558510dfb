// PerReplica: values that differ between the replicas of a strategy, as tf.distribute.DistributedValues, and how those
// of all replicas become one tensor. This is done in the host's memory.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/distribute/cross_device_ops.h"

namespace official::distribute {

struct PerReplica {
  std::vector<compute::Tensor> values;  // of the replicas of this worker, in their order; never those of other workers
};

// A value that each replica has of its own, or a plain tensor that is the same for all.
using DistributedValue = std::variant<compute::Tensor, PerReplica>;

// Returns the tensors that each of `num_replicas` gets of arguments, [replica][argument]: of a PerReplica its
// component, of others the tensor. InvalidArgument for a PerReplica with another number of components.
absl::StatusOr<std::vector<std::vector<compute::Tensor>>> ArgumentsOfReplicas(
    absl::Span<const DistributedValue> arguments, int num_replicas);

// Returns the sum or the mean of tensors of one type, one for each replica. Sums are made in float64 or int64 and then
// rounded to that type; the mean of integers is float64. Without `axis` the sum is elementwise, and the mean is divided
// by the number of replicas: InvalidArgument if shapes differ. With `axis`, which counts from the end if it is
// negative, elements are also summed along that dimension, which may differ between the replicas and is removed from
// the shape; the mean is divided by the number of elements along it on all replicas. InvalidArgument if another
// dimension differs, the axis does not exist or the type is bool. Source: tf.distribute.Strategy.reduce.
absl::StatusOr<compute::Tensor> ReduceTensors(ReduceOp op, absl::Span<const compute::Tensor> replicas,
                                              std::optional<int> axis);

// Returns the same of several replicas, reduced by `ops`: along an axis each replica's sum first, and its mean is their
// sum, divided. Means of integers are those of float64. Errors: as above, and those of `ops` and of CheckReduced.
absl::StatusOr<compute::Tensor> ReduceTensorsBy(CrossDeviceOps& ops, ReduceOp op,
                                                absl::Span<const compute::Tensor> replicas, std::optional<int> axis);

// Returns InvalidArgument "A non-DistributedValues value 1 cannot be reduced with the given reduce op ReduceOp.SUM."
// for a tensor that has elements other than 0.
absl::Status CheckPlainSum(const compute::Tensor& value);

// Returns tensors of one type, one for each replica, joined along `axis`, in whose size alone they may differ.
// InvalidArgument as above, and for scalars. Source: tf.distribute.Strategy.gather.
absl::StatusOr<compute::Tensor> ConcatTensors(absl::Span<const compute::Tensor> replicas, int axis);

}  // namespace official::distribute
