#include "utils/compute/ops/softmax/softmax.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> SoftmaxType(const InferContext& c) {
  if (c.num_inputs() < 1 || c.shape(0).rank() < 1 || !IsFloating(c.dtype(0))) {
    return c.Error("needs a floating input of rank 1 or more");
  }
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.type(i) != c.type(0)) return c.Error("needs inputs of one type");
  }
  return std::vector<TensorType>{c.type(0)};
}

absl::StatusOr<std::vector<TensorType>> LogSumExpType(const InferContext& c) {
  RETURN_IF_ERROR(SoftmaxType(c).status());
  return std::vector<TensorType>{{DType::kFloat32, RowShape(c.shape(0))}};
}

absl::Status CheckLabels(const InferContext& c) {
  if (c.num_inputs() < 2 || c.shape(0).rank() < 1 || !IsFloating(c.dtype(0))) {
    return c.Error("needs floating logits [..., classes] and labels");
  }
  if (c.dtype(1) != DType::kInt32 && c.dtype(1) != DType::kInt64) return c.Error("needs int32 or int64 labels");
  if (c.shape(1) != RowShape(c.shape(0))) return c.Error("needs one label for each row of logits");
  return absl::OkStatus();
}

// Outputs: the losses, and the logarithm of the sum of each row's exponentials.
absl::StatusOr<std::vector<TensorType>> CrossEntropyType(const InferContext& c) {
  RETURN_IF_ERROR(CheckLabels(c));
  if (c.num_inputs() != 2) return c.Error("needs logits and labels");
  const TensorType of_rows{DType::kFloat32, c.shape(1)};
  return std::vector<TensorType>{of_rows, of_rows};
}

// Inputs logits, labels, the forward pass's second output, the gradient of the losses.
absl::StatusOr<std::vector<TensorType>> CrossEntropyGradType(const InferContext& c) {
  RETURN_IF_ERROR(CheckLabels(c));
  const TensorType of_rows{DType::kFloat32, c.shape(1)};
  if (c.num_inputs() != 4 || c.type(2) != of_rows || c.type(3) != of_rows) {
    return c.Error("needs logits, labels and two float32 numbers for each row");
  }
  return std::vector<TensorType>{c.type(0)};
}

std::vector<Value> CrossEntropyGradient(const Node& node, absl::Span<const Value> dy) {
  if (!dy[0]) return {Value(), Value()};
  return {Apply(op::SparseSoftmaxCrossEntropyGrad, {node.input(0), node.input(1), node.output(1), dy[0]}, node.attrs()),
          Value()};
}

const bool softmax = RegisterOp({
    .name = op::Softmax,
    .infer = SoftmaxType,
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          return std::vector<Value>{Apply(op::SoftmaxGrad, {node.output(0), dy[0]})};
        },
    .tolerance = {1e-5, 1e-2},
});
const bool softmax_grad = RegisterOp({.name = op::SoftmaxGrad, .infer = SoftmaxType});
const bool log_softmax = RegisterOp({
    .name = op::LogSoftmax,
    .infer = SoftmaxType,
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          return std::vector<Value>{Apply(op::LogSoftmaxGrad, {node.output(0), dy[0]})};
        },
    .tolerance = {1e-5, 2e-2},
});
const bool log_softmax_grad = RegisterOp({.name = op::LogSoftmaxGrad, .infer = SoftmaxType});
const bool log_sum_exp = RegisterOp({.name = op::LogSumExp, .infer = LogSumExpType, .tolerance = {1e-5, 1e-5}});
const bool cross_entropy = RegisterOp({
    .name = op::SparseSoftmaxCrossEntropy,
    .infer = CrossEntropyType,
    .gradient = CrossEntropyGradient,
    .tolerance = {1e-5, 1e-2},
});
const bool cross_entropy_grad = RegisterOp({.name = op::SparseSoftmaxCrossEntropyGrad, .infer = CrossEntropyGradType});

float NumClasses(Value logits) { return logits.shape().rank() == 0 ? 0 : static_cast<float>(logits.shape().dim(-1)); }

}  // namespace

Value Softmax(Value x) { return Apply(op::Softmax, {x}); }
Value LogSoftmax(Value x) { return Apply(op::LogSoftmax, {x}); }
Value LogSumExp(Value x) { return Apply(op::LogSumExp, {x}); }

// TensorFlow makes the targets of numbers that it has rounded to float32, and so do we: their last bits are in every
// gradient.
Value SparseSoftmaxCrossEntropy(Value logits, Value labels, double label_smoothing) {
  if (!logits || !labels) return Value();
  const float other = static_cast<float>(label_smoothing) / NumClasses(logits);
  const float target = static_cast<float>(1 - label_smoothing) + other;
  return Apply(op::SparseSoftmaxCrossEntropy, {logits, labels}, Attrs{{"target", target}, {"other_target", other}});
}

Value PaddedCrossEntropy(Value logits, Value labels, double label_smoothing) {
  if (!logits || !labels) return Value();
  if (NumClasses(logits) < 2) {
    logits.graph()->Fail(absl::InvalidArgumentError(
        absl::StrCat("PaddedCrossEntropy: needs logits of 2 classes or more, got ", logits.type().ToString())));
    return Value();
  }
  const double confidence = 1 - label_smoothing;
  const float others = NumClasses(logits) - 1;
  const float target = static_cast<float>(confidence), other = static_cast<float>(1 - confidence) / others;
  const float entropy = -(target * std::log(target) + others * other * std::log(other + 1e-20f));
  return Apply(op::SparseSoftmaxCrossEntropy, {logits, labels},
               Attrs{{"target", target}, {"other_target", other}, {"padding_label", int64_t{0}}, {"entropy", entropy}});
}

}  // namespace official::compute
