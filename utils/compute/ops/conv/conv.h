// 2-D convolution, as TensorFlow defines it (a cross-correlation).
#pragma once

#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/window/window.h"

namespace official::compute::op {

inline constexpr OpName Conv2D("Conv2D");
inline constexpr OpName Conv2DBackpropFilter("Conv2DBackpropFilter");
inline constexpr OpName Conv2DBackpropInput("Conv2DBackpropInput");
inline constexpr OpName FusedConv2D("FusedConv2D");
inline constexpr OpName FusedConv2DBackpropFilter("FusedConv2DBackpropFilter");

}  // namespace official::compute::op

// The inputs of Conv2D and FusedConv2D.
namespace official::compute::conv2d {
enum Input : int { kImages, kFilters, kBias };  // FusedConv2D alone has a bias, [O] of the type of the images
}  // namespace official::compute::conv2d

// The inputs of Conv2DBackpropInput.
namespace official::compute::conv2d_backprop_input {
enum Input : int { kFilters, kDy };
}  // namespace official::compute::conv2d_backprop_input

// The inputs and outputs of Conv2DBackpropFilter and FusedConv2DBackpropFilter.
namespace official::compute::conv2d_backprop_filter {
enum Input : int { kImages, kDy };
enum Output : int { kFilterGradient, kBiasGradient };  // the latter of FusedConv2DBackpropFilter alone
}  // namespace official::compute::conv2d_backprop_filter

namespace official::compute {

using Conv2DParams = WindowParams;

// images   [N, H, W, C] float
// filters  [KH, KW, C, O], the same type
// result   [N, H', W', O]:
//   y[n, i, j, o] = sum over k, l, c of images[n, i * stride - before + k * dilation, j ..., c] * filters[k, l, c, o]
// It fails if the ranks, types or channels do not fit, or no window fits into the padded image.
Value Conv2D(Value images, Value filters, const Conv2DParams& params = {});

}  // namespace official::compute
