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

// For the forward pass and its gradient, which have these inputs in the same places.
absl::Status CheckLabels(const InferContext& c) {
  namespace in = sparse_softmax_cross_entropy;
  if (c.num_inputs() < 2 || c.shape(in::kLogits).rank() < 1 || !IsFloating(c.dtype(in::kLogits))) {
    return c.Error("needs floating logits [..., classes] and labels");
  }
  if (c.dtype(in::kLabels) != DType::kInt32 && c.dtype(in::kLabels) != DType::kInt64) {
    return c.Error("needs int32 or int64 labels");
  }
  if (c.shape(in::kLabels) != RowShape(c.shape(in::kLogits))) return c.Error("needs one label for each row of logits");
  const int64_t columns = c.shape(in::kLogits).dim(-1);
  if (!c.attrs.Has("classes")) return absl::OkStatus();
  if (const int64_t classes = c.attrs.GetInt("classes"); classes < 1 || classes > columns) {
    return c.Error(absl::StrCat("needs 1 to ", columns, " classes, got ", classes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> CrossEntropyType(const InferContext& c) {
  RETURN_IF_ERROR(CheckLabels(c));
  if (c.num_inputs() != 2) return c.Error("needs logits and labels");
  const TensorType of_rows{DType::kFloat32, c.shape(sparse_softmax_cross_entropy::kLabels)};
  return std::vector<TensorType>{of_rows, of_rows};
}

absl::StatusOr<std::vector<TensorType>> CrossEntropyGradType(const InferContext& c) {
  namespace in = sparse_softmax_cross_entropy_grad;
  RETURN_IF_ERROR(CheckLabels(c));
  const TensorType of_rows{DType::kFloat32, c.shape(in::kLabels)};
  if (c.num_inputs() != 4 || c.type(in::kLogSums) != of_rows || c.type(in::kLossGradients) != of_rows) {
    return c.Error("needs logits, labels and two float32 numbers for each row");
  }
  return std::vector<TensorType>{c.type(in::kLogits)};
}

std::vector<Value> CrossEntropyGradient(const Node& node, absl::Span<const Value> dy) {
  namespace forward = sparse_softmax_cross_entropy;
  if (!dy[forward::kLosses]) return {Value(), Value()};
  return {Apply(op::SparseSoftmaxCrossEntropyGrad,
                {node.input(forward::kLogits), node.input(forward::kLabels), node.output(forward::kLogSums),
                 dy[forward::kLosses]},
                node.attrs()),
          Value()};
}

const bool registered[] = {
    RegisterOp({
        .name = op::Softmax,
        .infer = SoftmaxType,
        .gradient =
            [](const Node& node, absl::Span<const Value> dy) {
              return std::vector<Value>{Apply(op::SoftmaxGrad, {node.output(0), dy[0]})};
            },
        .tolerance = {1e-5, 1e-2},
    }),
    RegisterOp({.name = op::SoftmaxGrad, .infer = SoftmaxType}),
    RegisterOp({
        .name = op::LogSoftmax,
        .infer = SoftmaxType,
        .gradient =
            [](const Node& node, absl::Span<const Value> dy) {
              return std::vector<Value>{Apply(op::LogSoftmaxGrad, {node.output(0), dy[0]})};
            },
        .tolerance = {1e-5, 2e-2},
    }),
    RegisterOp({.name = op::LogSoftmaxGrad, .infer = SoftmaxType}),
    RegisterOp({.name = op::LogSumExp, .infer = LogSumExpType, .tolerance = {1e-5, 1e-5}}),
    RegisterOp({
        .name = op::SparseSoftmaxCrossEntropy,
        .infer = CrossEntropyType,
        .gradient = CrossEntropyGradient,
        .tolerance = {1e-5, 1e-2},
    }),
    RegisterOp({.name = op::SparseSoftmaxCrossEntropyGrad, .infer = CrossEntropyGradType}),
};

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
