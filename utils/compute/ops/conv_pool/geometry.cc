#include "utils/compute/ops/conv_pool/geometry.h"

namespace official::compute {

bool ConvPoolSupports(const ConvPoolGeometry& g) {
  constexpr int64_t kMaxFloats = 1 << 18;
  return g.batch > 0 && g.height > 0 && g.width > 0 && g.height % 2 == 0 && g.width % 2 == 0 &&
         (g.in_channels == 1 || (g.in_channels > 0 && g.in_channels % 16 == 0)) && g.out_channels > 0 &&
         g.out_channels % 16 == 0 && (g.kernel == 3 || g.kernel == 5) && g.padded_size() <= kMaxFloats &&
         g.filter_size() <= kMaxFloats;
}

ConvPoolGeometry ConvPoolGeometryOf(const Shape& images, const Shape& filters) {
  return {.batch = images.dim(0),
          .height = images.dim(1),
          .width = images.dim(2),
          .in_channels = images.dim(3),
          .out_channels = filters.dim(3),
          .kernel = filters.dim(0) == filters.dim(1) ? filters.dim(0) : 0};
}

ConvPoolGeometry ConvPoolGeometryOf(const Node& node) {
  if (node.Is(op::FusedConv2DReluMaxPool)) {
    return ConvPoolGeometryOf(node.input(conv_pool::kImages).shape(), node.input(conv_pool::kFilters).shape());
  }
  if (node.Is(op::FusedConv2DReluMaxPoolBackpropInput)) {
    return ConvPoolGeometryOf(node.output_types()[0].shape, node.input(conv_pool_backprop::kFilters).shape());
  }
  return ConvPoolGeometryOf(node.input(conv_pool_backprop::kImages).shape(),
                            node.output_types()[conv_pool_backprop::kFilterGradient].shape);
}

}  // namespace official::compute
