// CrossDeviceOps: how the values of the replicas become one, as a program writes it itself:
// tf.distribute.CrossDeviceOps. The values are in the memory of the host.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"

namespace official::distribute {

// tf.distribute.ReduceOp.
enum class ReduceOp { kSum, kMean };

// StrategyOptions::cross_device_ops takes one: for gradients and the other sums of a step, and for StrategyScope's
// Reduce. Calls come one at a time, from any thread.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  // Returns the sum or the mean of `values`, one for each replica in their order, in their type, which is the same for
  // all. It may return one of the values, but not change it.
  virtual absl::StatusOr<compute::Tensor> Reduce(ReduceOp op, absl::Span<const compute::Tensor> values) = 0;
  // Returns the same for several values, [value][replica], such as the gradients of a step, which come as vectors
  // [elements] in the order in which they are computed. Without one of its own it reduces them one by one.
  virtual absl::StatusOr<std::vector<compute::Tensor>> BatchReduce(
      ReduceOp op, absl::Span<const std::vector<compute::Tensor>> values);
  // Returns what each replica gets of a value that BatchReduce has returned: without one of its own the value.
  virtual absl::StatusOr<std::vector<compute::Tensor>> Broadcast(const compute::Tensor& value, int num_replicas);
};

// Returns InvalidArgument if CrossDeviceOps have returned another type than `type`.
absl::Status CheckReduced(const compute::Tensor& result, const compute::TensorType& type);

}  // namespace official::distribute
