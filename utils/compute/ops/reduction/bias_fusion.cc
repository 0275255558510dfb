#include "utils/compute/ops/reduction/bias_fusion.h"

#include <string>

#include "utils/compute/graph/may_move.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {

using Outputs = std::optional<std::vector<Value>>;

Outputs FuseBiasRelu(OpName op, OpName fused, const Node& node, RewriteContext& context) {
  const bool is_bias = node.Is(op::BiasAdd), is_relu = node.Is(op::Relu);
  if (!is_bias && !is_relu) return std::nullopt;
  const Value input = node.input(0);
  if (context.UseCount(input) != 1 || !context.DeviceHasKernel(fused, input.dtype())) return std::nullopt;
  const Node& producer = *context.Mapped(input).node();
  if (!MayMoveToEnd(producer)) return std::nullopt;
  std::vector<Value> inputs(producer.inputs().begin(), producer.inputs().end());
  Attrs attrs = producer.attrs();
  if (is_bias && producer.Is(op)) {
    inputs.push_back(context.Mapped(node.input(bias_add::kBias)));
    attrs.Set("activation", std::string());
  } else if (is_relu && producer.Is(fused) && attrs.Get<std::string>("activation").empty()) {
    attrs.Set("activation", std::string("Relu"));
  } else {
    return std::nullopt;
  }
  return std::vector<Value>{OutputOf(context.graph().AddNode(fused, inputs, attrs), 0)};
}

Outputs FuseBiasGradient(const WeightGradient& gradient, const Node& node, RewriteContext& context) {
  const bool is_bias = node.Is(op::BiasAddGrad);
  if (!is_bias && !node.Is(gradient.op)) return std::nullopt;
  const Value dy = node.input(is_bias ? 0 : gradient.dy);
  if (!context.DeviceHasKernel(gradient.fused, dy.dtype())) return std::nullopt;
  const Node *weights = nullptr, *bias = nullptr;
  for (const Node* reader : context.Readers(dy)) {
    const bool pairs = reader->Is(gradient.op) && reader->input(gradient.dy) == dy && gradient.fits(*reader);
    if (weights == nullptr && pairs) weights = reader;
    if (bias == nullptr && reader->Is(op::BiasAddGrad)) bias = reader;
  }
  if (weights == nullptr || bias == nullptr || &node != (is_bias ? bias : weights)) return std::nullopt;
  const int output = is_bias ? gradient.bias_gradient : gradient.weight_gradient;
  const Node& partner = is_bias ? *weights : *bias;
  if (partner.id() < node.id()) {
    Node* const fused = context.Mapped(partner.output(0)).node();
    return fused->Is(gradient.fused) ? Outputs({fused->output(output)}) : std::nullopt;
  }
  const Value x = weights->input(gradient.x);
  if (x.node()->id() > node.id()) return std::nullopt;  // it does not exist yet
  if (!MayMoveBefore(partner, node)) return std::nullopt;
  Node* const fused =
      context.graph().AddNode(gradient.fused, {context.Mapped(x), context.Mapped(dy)}, weights->attrs());
  return std::vector<Value>{OutputOf(fused, output)};
}

}  // namespace official::compute
