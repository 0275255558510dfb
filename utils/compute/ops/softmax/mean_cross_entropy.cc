// The logits of a small batch in a training step: their cross entropies, the mean of these, its check, the gradients of
// logits and bias, and the number of rows that are classified correctly, with the conversions before and behind them,
// become one MeanCrossEntropy, where the device has a kernel for it.

#include <algorithm>
#include <optional>
#include <vector>

#include "utils/compute/graph/may_move.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/check_numerics/check_numerics.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"

namespace official::compute {
namespace {

namespace places = mean_cross_entropy;

absl::StatusOr<std::vector<TensorType>> InferMeanCrossEntropy(const InferContext& c) {
  if (c.num_inputs() != 3 || c.shape(places::kLogits).rank() != 2 || !IsStorageType(c.dtype(places::kLogits)) ||
      c.shape(places::kLogits).num_elements() < 1 || c.shape(places::kLogits).num_elements() > places::kMaxElements) {
    return c.Error("needs few logits [rows, classes] (float32, bfloat16 or half), labels and gradients of the losses");
  }
  const Shape rows = {c.shape(places::kLogits).dim(0)};
  if (c.shape(places::kLabels) != rows ||
      (c.dtype(places::kLabels) != DType::kInt32 && c.dtype(places::kLabels) != DType::kInt64) ||
      c.type(places::kLossGradients) != TensorType{DType::kFloat32, rows}) {
    return c.Error("needs an int32 or int64 label and a float32 gradient for each row of logits");
  }
  const TensorType scalar{DType::kFloat32, {}}, &logits = c.type(places::kLogits);
  return std::vector<TensorType>{scalar, scalar, logits, {logits.dtype, {logits.shape.dim(1)}}};
}

const bool registered_op = RegisterOp({
    .name = op::MeanCrossEntropy,
    .infer = InferMeanCrossEntropy,
    .has_side_effect = true,
    .tolerance = {1e-5, 2e-2},
});

// The reduction of all elements to a float32 scalar.
bool ReducesAll(const Node* node, OpName op) {
  return node != nullptr && node->Is(op) && node->output_types()[0] == TensorType{DType::kFloat32, {}};
}

// The value that `v` converts to another type, or `v` itself.
Value BehindCast(Value v) { return v.node()->Is(op::Cast) ? v.node()->input(0) : v; }

// The nodes that one MeanCrossEntropy replaces.
struct Pattern {
  const Node* losses;                   // SparseSoftmaxCrossEntropy
  const Node* mean = nullptr;           // of the losses
  const Node* check = nullptr;          // CheckNumerics(mean), if there is one
  const Node* gradient = nullptr;       // SparseSoftmaxCrossEntropyGrad
  Value logits = {};                    // what is converted to float32, if it is; the type of the gradient
  Value logits_gradient = {};           // the gradient in this type
  const Node* bias_gradient = nullptr;  // of `logits_gradient`, if there is one
  const Node* correct = nullptr;        // Sum(Cast(Equal(ArgMax(logits), labels))), if there is one
};

// True if `node` reads the same in the place of `losses`, before or behind it.
bool MayMoveTo(const Node& losses, const Node& node) {
  return node.id() < losses.id() ? ReadsTheSameAt(node, losses) : MayMoveBefore(node, losses);
}

// The sum over rows of whether ArgMax is the label, which is computed behind the losses; nullptr if there is none.
const Node* CountOfCorrect(Value logits, Value labels, const Node& losses, RewriteContext& context) {
  for (const Node* equal : context.Readers(labels)) {
    if (!equal->Is(op::Equal)) continue;
    const Value found = BehindCast(equal->input(equal->input(0) == labels ? 1 : 0));
    if (!found.node()->Is(op::ArgMax) || found.node()->input(0) != logits) continue;
    if (!MayMoveTo(losses, *found.node())) continue;
    const Node* const cast = context.OnlyReader(equal->output(0));
    const Node* const sum = cast != nullptr && cast->Is(op::Cast) ? context.OnlyReader(cast->output(0)) : nullptr;
    if (ReducesAll(sum, op::Sum) && sum->id() > losses.id()) return sum;
  }
  return nullptr;
}

std::optional<Pattern> PatternOf(const Node& node, RewriteContext& context) {
  namespace forward = sparse_softmax_cross_entropy;
  namespace backward = sparse_softmax_cross_entropy_grad;
  const Value logits = node.input(forward::kLogits), labels = node.input(forward::kLabels);
  const int64_t elements = logits.shape().num_elements();
  if (logits.shape().rank() != 2 || elements < 1 || elements > places::kMaxElements || !IsStorageType(logits.dtype()) ||
      node.attrs().Has("padding_label")) {
    return std::nullopt;
  }
  Pattern found{.losses = &node};
  found.mean = context.OnlyReader(node.output(forward::kLosses));
  found.gradient = context.OnlyReader(node.output(forward::kLogSums));
  if (!ReducesAll(found.mean, op::Mean) || found.gradient == nullptr ||
      !found.gradient->Is(op::SparseSoftmaxCrossEntropyGrad) || found.gradient->input(backward::kLogits) != logits ||
      found.gradient->input(backward::kLabels) != labels ||
      !found.gradient->input(backward::kLossGradients).node()->Is(op::Constant) || !MayMoveTo(node, *found.gradient)) {
    return std::nullopt;
  }
  for (const Node* reader : context.Readers(found.mean->output(0))) {
    if (reader->Is(op::CheckNumerics) && context.UseCount(reader->output(0)) > 0) found.check = reader;
  }
  found.logits = logits;
  found.logits_gradient = found.gradient->output(0);
  const Value narrow = BehindCast(logits);
  const Node* const cast = context.OnlyReader(found.logits_gradient);
  if (IsStorageType(narrow.dtype()) && logits.dtype() == DType::kFloat32 && cast != nullptr && cast->Is(op::Cast) &&
      cast->output_types()[0].dtype == narrow.dtype() && MayMoveTo(node, *logits.node())) {
    found.logits = narrow;
    found.logits_gradient = cast->output(0);
  }
  for (const Node* reader : context.Readers(found.logits_gradient)) {
    if (reader->Is(op::BiasAddGrad)) found.bias_gradient = reader;
  }
  found.correct = CountOfCorrect(logits, labels, node, context);
  return found;
}

std::optional<std::vector<Value>> FuseMeanCrossEntropy(const Node& node, RewriteContext& context) {
  namespace backward = sparse_softmax_cross_entropy_grad;
  if (!node.Is(op::SparseSoftmaxCrossEntropy)) return std::nullopt;
  const std::optional<Pattern> found = PatternOf(node, context);
  if (!found || !context.DeviceHasKernel(op::MeanCrossEntropy, found->logits.dtype())) return std::nullopt;
  Attrs attrs = node.attrs();
  attrs.Set("checked", found->check != nullptr);
  const Node* const fused = context.graph().AddNode(
      op::MeanCrossEntropy,
      {context.Mapped(found->logits), context.Mapped(node.input(sparse_softmax_cross_entropy::kLabels)),
       context.MappedSource(found->gradient->input(backward::kLossGradients))},
      std::move(attrs));
  OFFICIAL_CHECK(fused != nullptr) << context.graph().status().ToString();
  const Value loss = fused->output(places::kMeanLoss);
  context.Map(found->mean->output(0), loss);
  if (found->check != nullptr) context.Map(found->check->output(0), loss);
  const Value gradient = fused->output(places::kLogitsGradient);
  context.Map(found->gradient->output(0), gradient);
  context.Map(found->logits_gradient, gradient);
  if (found->bias_gradient != nullptr) {
    context.Map(found->bias_gradient->output(0), fused->output(places::kBiasGradient));
  }
  if (found->correct != nullptr) context.Map(found->correct->output(0), fused->output(places::kCorrect));
  return std::vector<Value>{Value(), Value()};
}

const bool registered_fusion = RegisterFusion({.name = "MeanCrossEntropy", .phase = 1, .rule = FuseMeanCrossEntropy});

}  // namespace
}  // namespace official::compute
