// Fusions that end in convolution ops: bias and ReLU behind a convolution, and the gradients of filters and bias.

#include <optional>
#include <vector>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/reduction/bias_fusion.h"

namespace official::compute {
namespace {

namespace backprop_filter = conv2d_backprop_filter;

using Outputs = std::optional<std::vector<Value>>;

Outputs FuseForward(const Node& node, RewriteContext& context) {
  return FuseBiasRelu(op::Conv2D, op::FusedConv2D, node, context);
}

Outputs FuseFilterGradient(const Node& node, RewriteContext& context) {
  static constexpr WeightGradient kGradient = {.op = op::Conv2DBackpropFilter,
                                               .fused = op::FusedConv2DBackpropFilter,
                                               .x = backprop_filter::kImages,
                                               .dy = backprop_filter::kDy,
                                               .weight_gradient = backprop_filter::kFilterGradient,
                                               .bias_gradient = backprop_filter::kBiasGradient,
                                               .fits = [](const Node&) { return true; }};
  return FuseBiasGradient(kGradient, node, context);
}

const bool registered[] = {
    RegisterFusion({.name = "Conv2DBiasRelu", .rule = FuseForward}),
    RegisterFusion({.name = "Conv2DFilterGradientBias", .rule = FuseFilterGradient}),
};

}  // namespace
}  // namespace official::compute
