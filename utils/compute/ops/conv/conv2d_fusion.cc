// Fusions that end in convolution ops: bias and ReLU behind a convolution, and the gradients of filters and bias, which
// both read the whole output gradient.

#include <optional>
#include <vector>

#include "utils/compute/graph/may_move.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {
namespace {

namespace backprop_filter = conv2d_backprop_filter;

using Outputs = std::optional<std::vector<Value>>;

// Relu(BiasAdd(Conv2D)) in two steps: the bias first, then the ReLU behind what that gave.
Outputs FuseForward(const Node& node, RewriteContext& context) {
  const bool is_bias = node.Is(op::BiasAdd), is_relu = node.Is(op::Relu);
  if (!is_bias && !is_relu) return std::nullopt;
  const Value input = node.input(0);
  if (context.UseCount(input) != 1 || !context.DeviceHasKernel(op::FusedConv2D, input.dtype())) return std::nullopt;
  const Value mapped = context.Mapped(input);
  const Node& producer = *mapped.node();
  if (!MayMoveToEnd(producer)) return std::nullopt;
  std::vector<Value> inputs(producer.inputs().begin(), producer.inputs().end());
  Attrs attrs = producer.attrs();
  if (is_bias && producer.Is(op::Conv2D)) {
    inputs.push_back(context.Mapped(node.input(1)));
    attrs.Set("activation", std::string());
  } else if (is_relu && producer.Is(op::FusedConv2D) && attrs.Get<std::string>("activation").empty()) {
    attrs.Set("activation", std::string("Relu"));
  } else {
    return std::nullopt;
  }
  return std::vector<Value>{OutputOf(context.graph().AddNode(op::FusedConv2D, inputs, attrs), 0)};
}

// Conv2DBackpropFilter(x, dy) and BiasAddGrad(dy) become one node when the first of the two is visited; the second one
// then takes its output of that node. Where several convolutions have the same dy, only the first filter gradient and
// the first bias gradient are a pair.
Outputs FuseFilterGradient(const Node& node, RewriteContext& context) {
  const bool is_filter = node.Is(op::Conv2DBackpropFilter);
  if (!is_filter && !node.Is(op::BiasAddGrad)) return std::nullopt;
  const Value dy = is_filter ? node.input(backprop_filter::kDy) : node.input(0);
  if (!context.DeviceHasKernel(op::FusedConv2DBackpropFilter, dy.dtype())) return std::nullopt;
  const Node *filter = nullptr, *bias = nullptr;
  for (const Node* reader : context.Readers(dy)) {
    const bool reads_dy = reader->Is(op::Conv2DBackpropFilter) && reader->input(backprop_filter::kDy) == dy;
    if (filter == nullptr && reads_dy) filter = reader;
    if (bias == nullptr && reader->Is(op::BiasAddGrad)) bias = reader;
  }
  if (filter == nullptr || bias == nullptr || &node != (is_filter ? filter : bias)) return std::nullopt;
  const int output = is_filter ? backprop_filter::kFilterGradient : backprop_filter::kBiasGradient;
  const Node& partner = is_filter ? *bias : *filter;
  if (partner.id() < node.id()) {
    Node* const fused = context.Mapped(partner.output(0)).node();
    if (!fused->Is(op::FusedConv2DBackpropFilter)) return std::nullopt;
    return std::vector<Value>{fused->output(output)};
  }
  const Value images = filter->input(backprop_filter::kImages);
  if (images.node()->id() > node.id()) return std::nullopt;  // they do not exist yet
  Node* const fused = context.graph().AddNode(op::FusedConv2DBackpropFilter,
                                              {context.Mapped(images), context.Mapped(dy)}, filter->attrs());
  return std::vector<Value>{OutputOf(fused, output)};
}

const bool registered[] = {
    RegisterFusion({.name = "Conv2DBiasRelu", .rule = FuseForward}),
    RegisterFusion({.name = "Conv2DFilterGradientBias", .rule = FuseFilterGradient}),
};

}  // namespace
}  // namespace official::compute
