// MaxPool(Relu(BiasAdd(Conv2D))) and its gradient become the ops of geometry.h. The rules see the graph as others leave
// it: the three first nodes are a FusedConv2D already, the ReLU's gradient is taken behind the pool's
// (MaxPoolGrad(ReluGrad(dy, pooled), codes)), and the gradients of filters and bias are one node.

#include <optional>
#include <vector>

#include "utils/compute/graph/may_move.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv_pool/geometry.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/window/window.h"

namespace official::compute {
namespace {

using Outputs = std::optional<std::vector<Value>>;

// The windows of `window` that the attributes of a convolution or pool slide over `images` have this stride, keep the
// image's size relative to it, and lie centred.
bool SlidesBy(int64_t stride, const Attrs& attrs, const Shape& images, Size2D window) {
  const absl::StatusOr<Window2D> resolved = ResolveWindow(attrs, images, window);
  if (!resolved.ok()) return false;
  for (const WindowAxis& axis : {resolved->height, resolved->width}) {
    if (axis.stride != stride || axis.dilation != 1 || axis.output * stride != axis.input ||
        axis.before != (axis.window - stride) / 2) {
      return false;
    }
  }
  return true;
}

// `pool` is a MaxPool; true if `conv` is a FusedConv2D that one kernel can compute with it.
bool Fits(const Node& conv, const Node& pool) {
  if (!conv.Is(op::FusedConv2D)) return false;
  const Shape &images = conv.input(conv2d::kImages).shape(), &filters = conv.input(conv2d::kFilters).shape();
  const std::vector<int64_t>& window = pool.attrs().GetInts("ksize");
  return conv.attrs().Get<std::string>("activation") == "Relu" &&
         ConvPoolSupports(ConvPoolGeometryOf(images, filters)) &&
         SlidesBy(1, conv.attrs(), images, {filters.dim(0), filters.dim(1)}) && window == std::vector<int64_t>{2, 2} &&
         SlidesBy(2, pool.attrs(), pool.input(0).shape(), {2, 2});
}

// `gradient` is MaxPoolGrad(ReluGrad(dy, values of the pool), codes of the pool).
bool IsMaskedGradient(const Node& gradient, const Node& pool) {
  if (!gradient.Is(op::MaxPoolGrad)) return false;
  if (gradient.input(max_pool_grad::kCodes) != pool.output(max_pool::kCodes)) return false;
  const Node& masked = *gradient.input(max_pool_grad::kDy).node();
  return masked.Is(op::ReluGrad) && masked.input(1) == pool.output(max_pool::kY);
}

// Nothing reads the codes but masked gradients, to which it is the same whether a cut value has kDeadWindow as its
// code.
bool OnlyMaskedGradientsReadCodes(const Node& pool, const RewriteContext& context) {
  int readers = 0;
  const auto& nodes = pool.graph().nodes();
  for (auto node = nodes.begin() + pool.id(); node != nodes.end(); ++node) {
    if (IsMaskedGradient(**node, pool) && context.UseCount((*node)->output(0)) > 0) ++readers;
  }
  return readers == context.UseCount(pool.output(max_pool::kCodes));
}

Outputs FuseForward(const Node& pool, RewriteContext& context) {
  const Node& conv = *pool.input(0).node();
  if (context.UseCount(pool.input(0)) != 1 ||
      !context.DeviceHasKernel(op::FusedConv2DReluMaxPool, pool.input(0).dtype())) {
    return std::nullopt;
  }
  if (!Fits(conv, pool) || !MayMoveToEnd(*context.Mapped(pool.input(0)).node()) ||
      !OnlyMaskedGradientsReadCodes(pool, context)) {
    return std::nullopt;
  }
  const Node* const fused =
      context.graph().AddNode(op::FusedConv2DReluMaxPool, {context.Mapped(conv.input(conv2d::kImages)),
                                                           context.Mapped(conv.input(conv2d::kFilters)),
                                                           context.Mapped(conv.input(conv2d::kBias))});
  return std::vector<Value>{fused->output(conv_pool::kPooled), fused->output(conv_pool::kCodes)};
}

// A gradient op of the convolution whose output gradient came through a pool that FuseForward has fused.
Outputs FuseBackward(const Node& node, bool is_filter, RewriteContext& context) {
  const OpName fused_op =
      is_filter ? op::FusedConv2DReluMaxPoolBackpropFilter : op::FusedConv2DReluMaxPoolBackpropInput;
  const Value d_output = node.input(is_filter ? int{conv2d_backprop_filter::kDy} : int{conv2d_backprop_input::kDy});
  const Value other =
      node.input(is_filter ? int{conv2d_backprop_filter::kImages} : int{conv2d_backprop_input::kFilters});
  const Node& gradient = *d_output.node();
  if (!gradient.Is(op::MaxPoolGrad) || !context.DeviceHasKernel(fused_op, other.dtype())) return std::nullopt;
  const Value codes = context.Mapped(gradient.input(max_pool_grad::kCodes));
  if (!codes.node()->Is(op::FusedConv2DReluMaxPool)) return std::nullopt;
  const Shape result = node.output_types()[0].shape;
  const Shape images = is_filter ? other.shape() : result, filters = is_filter ? result : other.shape();
  if (!ConvPoolSupports(ConvPoolGeometryOf(images, filters)) || (!is_filter && images.dim(3) == 1) ||
      !SlidesBy(1, node.attrs(), images, {filters.dim(0), filters.dim(1)})) {
    return std::nullopt;
  }
  const Value dy = gradient.input(max_pool_grad::kDy).node()->input(0);
  Attrs attrs;
  if (is_filter) attrs.Set("filter_shape", node.attrs().GetInts("filter_shape"));
  const Node* const fused =
      context.graph().AddNode(fused_op, {context.Mapped(other), codes, context.Mapped(dy)}, attrs);
  std::vector<Value> outputs;  // of both or, where nobody wanted the bias's gradient, of the filters alone
  for (int i = 0; i < node.num_outputs(); ++i) outputs.push_back(fused->output(i));
  return outputs;
}

Outputs Fuse(const Node& node, RewriteContext& context) {
  if (node.Is(op::MaxPool)) return FuseForward(node, context);
  const bool is_filter = node.Is(op::Conv2DBackpropFilter) || node.Is(op::FusedConv2DBackpropFilter);
  if (is_filter || node.Is(op::Conv2DBackpropInput)) return FuseBackward(node, is_filter, context);
  return std::nullopt;
}

// Behind "Conv2DBiasRelu" and "Conv2DFilterGradientBias".
const bool registered = RegisterFusion({.name = "Conv2DReluMaxPool", .rule = Fuse});

}  // namespace
}  // namespace official::compute
