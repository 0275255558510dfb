// Geometry that the nodes of this family have in common: convolution + bias + ReLU + 2x2 max pooling as one operation.
//
// Fusion saves work: the activation before pooling (four times the size of the result) is never written, and of its
// gradient at most one value in four is not zero, so that the backward pass does a quarter of the multiplications of a
// convolution's.
//
// There are three ops, which only the fusion rules make:
//   FusedConv2DReluMaxPool(images, filters, bias) -> pooled, codes
//   FusedConv2DReluMaxPoolBackpropFilter(images, codes, d_pooled; filter_shape) -> d_filters, d_bias
//   FusedConv2DReluMaxPoolBackpropInput(filters, codes, d_pooled) -> d_images
// images [N, H, W, C], filters [K, K, C, O], bias [O], pooled [N, H / 2, W / 2, O], all of one float type; codes uint8
// like pooled: see kDeadWindow.
#pragma once

#include <cstdint>

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName FusedConv2DReluMaxPool("FusedConv2DReluMaxPool");
inline constexpr OpName FusedConv2DReluMaxPoolBackpropFilter("FusedConv2DReluMaxPoolBackpropFilter");
inline constexpr OpName FusedConv2DReluMaxPoolBackpropInput("FusedConv2DReluMaxPoolBackpropInput");

}  // namespace official::compute::op

// The inputs and outputs of FusedConv2DReluMaxPool.
namespace official::compute::conv_pool {
enum Input : int { kImages, kFilters, kBias };
enum Output : int { kPooled, kCodes };
}  // namespace official::compute::conv_pool

// The inputs and outputs of FusedConv2DReluMaxPoolBackpropFilter and FusedConv2DReluMaxPoolBackpropInput.
namespace official::compute::conv_pool_backprop {
// The first input of the former is the images, that of the latter the filters.
enum Input : int { kImages, kFilters = kImages, kCodes, kPooledGradient };
enum Output : int { kFilterGradient, kBiasGradient };  // of the former
}  // namespace official::compute::conv_pool_backprop

namespace official::compute {

// The geometry of a convolution with stride 1 and SAME padding and of pooling with window and stride 2.
struct ConvPoolGeometry {
  int64_t batch = 0;
  int64_t height = 0, width = 0;  // size of the images and of the convolution's output
  int64_t in_channels = 0, out_channels = 0;
  int64_t kernel = 0;  // height and width

  int64_t pooled_height() const { return height / 2; }
  int64_t pooled_width() const { return width / 2; }
  int64_t taps() const { return kernel * kernel; }
  int64_t padded_height() const { return height + kernel - 1; }
  int64_t padded_width() const { return width + kernel - 1; }
  // The number of floats of one image with its padding, and of the filters.
  int64_t padded_size() const { return padded_height() * padded_width() * in_channels; }
  int64_t filter_size() const { return taps() * in_channels * out_channels; }
};

// A code says where in its 2x2 window a pooled value came from, as MaxPool's do: 0 top left, 1 top right, 2 bottom
// left, 3 bottom right, the first one of equals. This code says that the ReLU cut the value, so that no gradient passes
// (nor does it through NaN):
constexpr uint8_t kDeadWindow = 4;

// True if the kernels support this geometry: even height and width, 1 or a multiple of 16 input channels, a multiple of
// 16 output channels, kernel 3 or 5; an image and the filters of at most 1 MB, because a core's L2 cache holds them.
bool ConvPoolSupports(const ConvPoolGeometry& geometry);

// The geometry for a convolution of images [N, H, W, C] with filters [KH, KW, C, O]; its kernel is 0 if KH != KW.
ConvPoolGeometry ConvPoolGeometryOf(const Shape& images, const Shape& filters);
// The geometry of a node of any op of the family.
ConvPoolGeometry ConvPoolGeometryOf(const Node& node);

}  // namespace official::compute
