#include "utils/distribute/custom_loop/loss.h"

#include "absl/status/status.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/distribute/custom_loop/sample_weight.h"

namespace official::distribute {
namespace {

using compute::Value;

Value SumDividedBy(Value loss, int64_t divisor) {
  const Value sum = compute::Sum(loss);
  if (!sum) return sum;
  const compute::Tensor number = compute::Tensor::Scalar(static_cast<float>(divisor)).CastTo(sum.dtype());
  return compute::Div(sum, sum.graph()->Constant(number));
}

}  // namespace

Value ComputeAverageLoss(Value per_example_loss, const AverageLoss& options) {
  if (!per_example_loss) return per_example_loss;
  compute::Graph& graph = *per_example_loss.graph();
  if (per_example_loss.shape().rank() == 0) {
    graph.Fail(
        absl::InvalidArgumentError("Invalid value passed for `per_example_loss`. Expected a tensor with at least rank "
                                   "1."));
    return Value();
  }
  const int64_t batch_size =
      options.global_batch_size.value_or(per_example_loss.shape().dim(0) * graph.step_context().num_replicas);
  if (batch_size < 0) {
    graph.Fail(absl::InvalidArgumentError("global_batch_size must be non-negative."));
    return Value();
  }
  if (options.sample_weight) {
    per_example_loss = compute::Mul(per_example_loss, AlignSampleWeight(options.sample_weight, per_example_loss));
  }
  if (batch_size == 0 && per_example_loss) {
    // Not a constant: the variables have gradients, of zeros, as on replicas with examples.
    return compute::Mul(compute::Sum(per_example_loss), graph.Constant(compute::Tensor(per_example_loss.dtype(), {})));
  }
  return SumDividedBy(per_example_loss, batch_size);
}

Value ScaleRegularizationLoss(Value regularization_loss) {
  if (!regularization_loss) return regularization_loss;
  return SumDividedBy(regularization_loss, regularization_loss.graph()->step_context().num_replicas);
}

}  // namespace official::distribute
