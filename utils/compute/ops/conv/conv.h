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

namespace official::compute {

using Conv2DParams = WindowParams;

// images   [N, H, W, C] float
// filters  [KH, KW, C, O], the same type
// result   [N, H', W', O]:
//   y[n, i, j, o] = sum over k, l, c of images[n, i * stride - before + k * dilation, j ..., c] * filters[k, l, c, o]
// It fails if the ranks, types or channels do not fit, or no window fits into the padded image.
Value Conv2D(Value images, Value filters, const Conv2DParams& params = {});

}  // namespace official::compute
