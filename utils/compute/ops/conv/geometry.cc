#include "utils/compute/ops/conv/geometry.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/conv/conv.h"

namespace official::compute {

absl::StatusOr<ConvGeometry> ResolveConv(const InferContext& c, const TensorType& images, const TensorType& filters) {
  if (images.shape.rank() != 4) return c.Error("images must be [N, H, W, C]");
  if (filters.shape.rank() != 4) return c.Error("filters must be [height, width, channels in, channels out]");
  if (!IsFloating(images.dtype) || images.dtype != filters.dtype) {
    return c.Error("images and filters must have one floating type");
  }
  if (images.shape.dim(3) != filters.shape.dim(2)) {
    return c.Error(
        absl::StrCat("images have ", images.shape.dim(3), " channels, the filters take ", filters.shape.dim(2)));
  }
  const absl::StatusOr<Window2D> window =
      ResolveWindow(c.attrs, images.shape, {filters.shape.dim(0), filters.shape.dim(1)});
  if (!window.ok()) return c.Error(window.status().message());
  const TensorType output{images.dtype,
                          {images.shape.dim(0), window->height.output, window->width.output, filters.shape.dim(3)}};
  return ConvGeometry{images, filters, output, *window};
}

ConvGeometry ConvGeometryOf(const Node& node) {
  TensorType images, filters;
  if (node.Is(op::Conv2DBackpropInput)) {
    images = node.output_types()[0];
    filters = node.input(conv2d_backprop_input::kFilters).type();
  } else if (node.Is(op::Conv2D) || node.Is(op::FusedConv2D)) {
    images = node.input(conv2d::kImages).type();
    filters = node.input(conv2d::kFilters).type();
  } else {
    images = node.input(conv2d_backprop_filter::kImages).type();
    filters = node.output_types()[conv2d_backprop_filter::kFilterGradient];
  }
  // The node's own shape rule has accepted these.
  return ResolveConv({node.op().name, node.inputs(), node.attrs()}, images, filters).value();
}

ConvAlgorithm ConvAlgorithmOf(const Attrs& attrs) {
  return attrs.Has("algorithm") && attrs.Get<std::string>("algorithm") == "winograd" ? ConvAlgorithm::kWinograd
                                                                                     : ConvAlgorithm::kDirect;
}

}  // namespace official::compute
