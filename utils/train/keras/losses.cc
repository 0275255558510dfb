#include "utils/train/keras/losses.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/distribute/custom_loop/current_strategy.h"

namespace official::keras {
namespace {

using compute::Tensor;
using compute::Value;

// Returns the losses of examples or of their elements, reduced to a scalar.
Value MeanOfBatch(Value losses) {
  if (losses && distribute::HasStrategy()) {
    losses.graph()->Fail(absl::InvalidArgumentError(
        "Please use `tf.keras.losses.Reduction.SUM` or `tf.keras.losses.Reduction.NONE` for loss reduction when losses "
        "are used with `tf.distribute.Strategy` outside of the built-in training loops. Replicas add up gradients, so "
        "the mean over a replica's batch counts too much; give keras::Reduction::kNone, and divide by the size of the "
        "global batch with distribute::ComputeAverageLoss"));
    return Value();
  }
  return compute::Mean(losses);
}

// A loss of the mean over the last dimension of what `elements` returns.
LossFn MeanOfElements(LossFn elements, Reduction reduction) {
  return [elements = std::move(elements), reduction](Value labels, Value outputs) {
    const Aligned aligned = AlignRanks(labels, outputs);
    const Value losses = elements(aligned.labels, aligned.outputs);
    return reduction == Reduction::kNone ? compute::Mean(losses, {-1}) : MeanOfBatch(losses);
  };
}

// Of each logit: max(x, 0) - x z + log(1 + exp(-|x|)), with the gradient sigmoid(x) - z also where x is 0.
// Source: tf.nn.sigmoid_cross_entropy_with_logits.
Value SigmoidCrossEntropy(Value labels, Value logits) {
  if (!logits) return logits;
  const auto constant = [&](float number) { return logits.graph()->Constant(Tensor::Scalar(number)); };
  const Value zero = constant(0), one = constant(1);
  const Value is_positive = compute::GreaterEqual(logits, zero);
  const Value positive = compute::Maximum(logits, zero);
  const Value minus_abs = compute::Select(is_positive, compute::Neg(logits), logits);
  const Value log_of_sum = compute::Log(compute::Add(one, compute::Exp(minus_abs)));
  return compute::Add(compute::Sub(positive, compute::Mul(logits, labels)), log_of_sum);
}

// Returns `value` with a last dimension of size 1 added or removed, where AlignRanks changes it and not the other.
Value WithRankOf(const compute::Shape& other, Value value) {
  const compute::Shape& shape = value.shape();
  if (shape.rank() == 1 && other.rank() == 2 && other.dim(1) == 1) return compute::ExpandDims(value, -1);
  const bool is_longer = other.rank() > 1 && shape.rank() == other.rank() + 1;
  return is_longer && shape.dim(other.rank()) == 1 ? compute::Squeeze(value, -1) : value;
}

}  // namespace

Aligned AlignRanks(Value labels, Value outputs) {
  if (!labels || !outputs) return {};
  const Aligned aligned = {WithRankOf(outputs.shape(), labels), WithRankOf(labels.shape(), outputs)};
  if (aligned.labels.shape() == aligned.outputs.shape()) return aligned;
  outputs.graph()->Fail(absl::InvalidArgumentError(
      absl::StrCat("the labels have the shape ", labels.shape().ToString(), ", and what is compared with them ",
                   outputs.shape().ToString(), "; give both the same, up to a last dimension of size 1")));
  return {};
}

LossFn MeanSquaredError(Reduction reduction) {
  return MeanOfElements([](Value labels, Value outputs) { return compute::Square(compute::Sub(outputs, labels)); },
                        reduction);
}

LossFn SparseCategoricalCrossentropy(Reduction reduction) {
  return [reduction](Value labels, Value outputs) {
    const Value losses = compute::SparseSoftmaxCrossEntropy(outputs, labels);
    return reduction == Reduction::kNone ? losses : MeanOfBatch(losses);
  };
}

LossFn BinaryCrossentropy(Reduction reduction) { return MeanOfElements(SigmoidCrossEntropy, reduction); }

}  // namespace official::keras
