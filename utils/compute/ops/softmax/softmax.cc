#include "utils/compute/ops/softmax/softmax.h"

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

absl::StatusOr<std::vector<TensorType>> CrossEntropyType(const InferContext& c) {
  if (c.num_inputs() != 2 || c.shape(0).rank() < 1 || !IsFloating(c.dtype(0))) {
    return c.Error("needs floating logits [..., classes] and labels");
  }
  if (c.dtype(1) != DType::kInt32 && c.dtype(1) != DType::kInt64) return c.Error("needs int32 or int64 labels");
  const Shape rows = RowShape(c.shape(0));
  if (c.shape(1) != rows) return c.Error("needs one label for each row of logits");
  return std::vector<TensorType>{{DType::kFloat32, rows}, c.type(0)};
}

// Output 1 of the forward op is the gradient for an output gradient of 1.
std::vector<Value> CrossEntropyGradient(const Node& node, absl::Span<const Value> dy) {
  if (!dy[0]) return {Value(), Value()};
  const Shape& rows = node.output_types()[0].shape;
  std::vector<int64_t> column(rows.dims().begin(), rows.dims().end());
  column.push_back(1);
  Value scale = Apply("Reshape", {dy[0]}, Attrs{{"shape", column}});
  const DType dtype = node.input(0).dtype();
  if (dtype != DType::kFloat32) scale = Apply("Cast", {scale}, Attrs{{"dtype", dtype}});
  return {Apply("Mul", {node.output(1), scale}), Value()};
}

const bool softmax = RegisterOp({
    .name = "Softmax",
    .infer = SoftmaxType,
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          return std::vector<Value>{Apply("SoftmaxGrad", {node.output(0), dy[0]})};
        },
    .tolerance = {1e-5, 1e-2},
});
const bool softmax_grad = RegisterOp({.name = "SoftmaxGrad", .infer = SoftmaxType});
const bool log_softmax = RegisterOp({
    .name = "LogSoftmax",
    .infer = SoftmaxType,
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          return std::vector<Value>{Apply("LogSoftmaxGrad", {node.output(0), dy[0]})};
        },
    .tolerance = {1e-5, 2e-2},
});
const bool log_softmax_grad = RegisterOp({.name = "LogSoftmaxGrad", .infer = SoftmaxType});
const bool cross_entropy = RegisterOp({
    .name = "SparseSoftmaxCrossEntropy",
    .infer = CrossEntropyType,
    .gradient = CrossEntropyGradient,
    .tolerance = {1e-5, 1e-2},
});

}  // namespace

Value Softmax(Value x) { return Apply("Softmax", {x}); }
Value LogSoftmax(Value x) { return Apply("LogSoftmax", {x}); }

Value SparseSoftmaxCrossEntropy(Value logits, Value labels, float label_smoothing) {
  return Apply("SparseSoftmaxCrossEntropy", {logits, labels},
               Attrs{{"label_smoothing", static_cast<double>(label_smoothing)}});
}

}  // namespace official::compute
