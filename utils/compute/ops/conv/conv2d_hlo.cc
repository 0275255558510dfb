// Convolutions in StableHLO, whose convolution can dilate either operand and takes its dimensions in any order: so the
// two gradients are convolutions too.

#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv/geometry.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// One axis of StableHLO's convolution.
struct Axis {
  int64_t stride = 1, low = 0, high = 0;  // of the window; padding of the left operand
  int64_t left_dilation = 1, right_dilation = 1;
};

// `dimensions`: what the dimensions of the operands and the result are, "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]".
HloValue Convolution(HloBuilder& hlo, const HloValue& left, const HloValue& right, const Axis& h, const Axis& w,
                     bool reversed, const std::string& dimensions, const Shape& result) {
  return hlo.Op("convolution", {left, right}, {hlo::kF32, result},
                absl::StrCat("window_strides = ", HloInts({h.stride, w.stride}), ", padding = dense<[[", h.low, ", ",
                             h.high, "], [", w.low, ", ", w.high,
                             "]]> : tensor<2x2xi64>, lhs_dilation = ", HloInts({h.left_dilation, w.left_dilation}),
                             ", rhs_dilation = ", HloInts({h.right_dilation, w.right_dilation}),
                             ", window_reversal = array<i1: ", reversed ? "true, true" : "false, false",
                             ">, dimension_numbers = #stablehlo.conv<", dimensions,
                             ">, feature_group_count = 1 : i64, batch_group_count = 1 : i64, ", kHloExactProducts));
}

// The extent of what windows or a dilated operand of `n` elements cover.
int64_t Extent(int64_t n, int64_t step) { return (n - 1) * step + 1; }

void EmitForward(const Node& node, HloBuilder& hlo) {
  const ConvGeometry conv = ConvGeometryOf(node);
  const auto axis = [](const WindowAxis& a) {
    return Axis{.stride = a.stride, .low = a.before, .high = a.after, .right_dilation = a.dilation};
  };
  const HloValue images = hlo.In(node.input(conv2d::kImages)), filters = hlo.In(node.input(conv2d::kFilters));
  hlo.Out(node, 0,
          Convolution(hlo, images, filters, axis(conv.window.height), axis(conv.window.width), /*reversed=*/false,
                      "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", conv.output.shape));
}

// The gradient of the output, spread by the strides, under the reversed filters.
void EmitBackpropInput(const Node& node, HloBuilder& hlo) {
  namespace in = conv2d_backprop_input;
  const ConvGeometry conv = ConvGeometryOf(node);
  const auto axis = [](const WindowAxis& a) {
    const int64_t reach = Extent(a.window, a.dilation) - 1, low = reach - a.before;
    return Axis{.low = low,
                .high = a.input + reach - Extent(a.output, a.stride) - low,
                .left_dilation = a.stride,
                .right_dilation = a.dilation};
  };
  hlo.Out(node, 0,
          Convolution(hlo, hlo.In(node.input(in::kDy)), hlo.In(node.input(in::kFilters)), axis(conv.window.height),
                      axis(conv.window.width), /*reversed=*/true, "[b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f]",
                      conv.images.shape));
}

// The images, whose channels take the place of the batch, under the gradient of the output as filters.
void EmitBackpropFilter(const Node& node, HloBuilder& hlo) {
  namespace in = conv2d_backprop_filter;
  const ConvGeometry conv = ConvGeometryOf(node);
  const auto axis = [](const WindowAxis& a) {
    return Axis{.stride = a.dilation,
                .low = a.before,
                .high = Extent(a.window, a.dilation) - 1 + Extent(a.output, a.stride) - a.input - a.before,
                .right_dilation = a.stride};
  };
  hlo.Out(node, 0,
          Convolution(hlo, hlo.In(node.input(in::kImages)), hlo.In(node.input(in::kDy)), axis(conv.window.height),
                      axis(conv.window.width), /*reversed=*/false, "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]",
                      conv.filters.shape));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::Conv2D, .dtypes = StorageTypes(), .emit = EmitForward}),
    RegisterHloEmitter({.op = op::Conv2DBackpropInput, .dtypes = StorageTypes(), .emit = EmitBackpropInput}),
    RegisterHloEmitter({.op = op::Conv2DBackpropFilter, .dtypes = StorageTypes(), .emit = EmitBackpropFilter}),
};

}  // namespace
}  // namespace official::compute
