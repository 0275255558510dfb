// Fusions of batch normalization with what follows it: an Add of the same shape (a residual connection), a ReLU, both;
// of its gradient with that of the ReLU, and with the sum of the gradients of all that read x. What the backward pass
// reads of the normalized values is computed again.

#include <algorithm>
#include <optional>
#include <vector>

#include "utils/compute/graph/may_move.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"

namespace official::compute {
namespace {

namespace training = fused_batch_norm;
namespace inference = fused_batch_norm_inference;
namespace backward = fused_batch_norm_grad;

using Outputs = std::optional<std::vector<Value>>;

// Nodes whose first output is y.
bool IsNorm(const Node& node) { return node.Is(op::FusedBatchNorm) || node.Is(op::FusedBatchNormInference); }
bool HasResidual(const Node& node) {
  if (node.Is(op::FusedBatchNorm)) return node.num_inputs() > training::kResidual;
  return node.num_inputs() > inference::kResidual;
}
bool HasRelu(const Node& node) { return node.attrs().Get<std::string>("activation") == "Relu"; }

// A normalization, with the Add and the ReLU behind it that alone read what it gives.
Outputs FuseForward(const Node& node, RewriteContext& context) {
  if (!IsNorm(node) || HasRelu(node)) return std::nullopt;
  std::vector<Value> inputs;
  for (const Value& v : node.inputs()) inputs.push_back(context.Mapped(v));
  Attrs attrs = node.attrs();
  std::vector<Value> replaced;
  const Value y = node.output(training::kY);
  const Node* reader = context.OnlyReader(y);
  if (reader != nullptr && reader->Is(op::Add) && !HasResidual(node)) {
    const Value residual = reader->input(reader->input(0) == y ? 1 : 0);
    if (residual.type() == y.type() && residual.node()->id() < node.id() && MayMoveBefore(*reader, node)) {
      inputs.push_back(context.Mapped(residual));
      replaced.push_back(reader->output(0));
      reader = context.OnlyReader(replaced.back());
    }
  }
  if (reader != nullptr && reader->Is(op::Relu)) {
    attrs.Set("activation", std::string("Relu"));
    replaced.push_back(reader->output(0));
  }
  if (replaced.empty()) return std::nullopt;
  Node* const result = context.graph().AddNode(node.op().name, inputs, attrs, node.name());
  for (const Value& v : replaced) context.Map(v, OutputOf(result, training::kY));
  std::vector<Value> outputs;
  for (int i = 0; i < node.num_outputs(); ++i) outputs.push_back(OutputOf(result, i));
  return outputs;
}

// FusedBatchNormGrad(ReluGrad(dy, y), ...) with y the output of a normalization with ReLU and no residual.
Outputs FuseGradient(const Node& node, RewriteContext& context) {
  if (!node.Is(op::FusedBatchNormGrad) || node.num_inputs() != backward::kBeta) return std::nullopt;
  const Value relu_grad = node.input(backward::kDy);
  if (!relu_grad.node()->Is(op::ReluGrad) || context.UseCount(relu_grad) != 1) return std::nullopt;
  const Value y = relu_grad.node()->input(1);
  const Node& norm = *y.node();
  if (!norm.Is(op::FusedBatchNorm) || !HasRelu(norm) || HasResidual(norm) || y != norm.output(training::kY) ||
      node.input(backward::kMean) != norm.output(training::kMean) || !ReadsTheSameAt(norm, node)) {
    return std::nullopt;
  }
  std::vector<Value> inputs = {context.Mapped(relu_grad.node()->input(0))};
  for (int i = backward::kX; i < backward::kBeta; ++i) inputs.push_back(context.Mapped(node.input(i)));
  inputs.push_back(context.Mapped(norm.input(training::kBeta)));
  Node* const result = context.graph().AddNode(op::FusedBatchNormGrad, inputs, node.attrs(), node.name());
  return backward::OutputsOf(result);
}

// Add(addend, dx of FusedBatchNormGrad), where the addend was there before: a residual connection begins at x.
Outputs FuseSum(const Node& node, RewriteContext& context) {
  if (!node.Is(op::FusedBatchNormGrad)) return std::nullopt;
  const Value dx = node.output(backward::kDx);
  const Node* const reader = context.OnlyReader(dx);
  if (reader == nullptr || !reader->Is(op::Add)) return std::nullopt;
  const Value addend = reader->input(reader->input(0) == dx ? 1 : 0);
  if (addend.type() != dx.type() || addend.node()->id() > node.id() || !MayMoveBefore(*reader, node)) {
    return std::nullopt;
  }
  std::vector<Value> inputs;
  for (const Value& v : node.inputs()) inputs.push_back(context.Mapped(v));
  inputs.push_back(context.Mapped(addend));
  Node* const result = context.graph().AddNode(node.op().name, inputs, node.attrs(), node.name());
  context.Map(reader->output(0), OutputOf(result, backward::kDx));
  return backward::OutputsOf(result);
}

// The gradient of filters reads the images that the forward pass convolved. Where a normalization made them, they are
// made again from its x, which its own gradient needs too, for the first gradient that reads them: so they need not be
// kept from the forward pass on.
Outputs NormalizeAgain(const Node& node, RewriteContext& context) {
  if (!node.Is(op::Conv2DBackpropFilter)) return std::nullopt;
  const Value y = node.input(conv2d_backprop_filter::kImages);
  if (!context.DeviceHasKernel(op::FusedBatchNormAgain, y.dtype())) return std::nullopt;
  const Node& norm = *y.node();
  if (!norm.Is(op::FusedBatchNorm) || y.index() != training::kY || HasResidual(norm)) return std::nullopt;
  const std::vector<const Node*>& readers = context.Readers(y);
  const auto is_gradient = [&](const Node* reader) {
    return reader->Is(node.op().name) && reader->input(conv2d_backprop_filter::kImages) == y;
  };
  const auto first = std::find_if(readers.begin(), readers.end(), is_gradient);
  // What others read then or the caller fetches is kept anyway.
  const bool kept = context.UseCount(y) > static_cast<int>(readers.size());
  if (kept || !std::all_of(first, readers.end(), is_gradient) || !ReadsTheSameAt(norm, **first)) return std::nullopt;
  Value again;
  if (*first == &node) {
    const Value inputs[] = {norm.input(training::kX), norm.input(training::kGamma), norm.input(training::kBeta),
                            norm.output(training::kMean), norm.output(training::kInverseDeviation)};
    std::vector<Value> mapped;
    for (const Value& v : inputs) mapped.push_back(context.Mapped(v));
    again = OutputOf(context.graph().AddNode(op::FusedBatchNormAgain, mapped, norm.attrs(), norm.name() + "_again"), 0);
  } else {
    again = context.Mapped((*first)->output(0)).node()->input(conv2d_backprop_filter::kImages);
  }
  const Value inputs[] = {again, context.Mapped(node.input(conv2d_backprop_filter::kDy))};
  return std::vector<Value>{OutputOf(context.graph().AddNode(node.op().name, inputs, node.attrs(), node.name()), 0)};
}

const bool registered[] = {
    RegisterFusion({.name = "BatchNormAddRelu", .rule = FuseForward}),
    RegisterFusion({.name = "BatchNormAddReluGradient", .rule = FuseGradient}),
    RegisterFusion({.name = "BatchNormAgain", .rule = NormalizeAgain}),
    RegisterFusion({.name = "BatchNormGradientSum", .rule = FuseSum}),
};

}  // namespace
}  // namespace official::compute
