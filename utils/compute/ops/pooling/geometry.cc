#include "utils/compute/ops/pooling/geometry.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/pooling/pooling.h"

namespace official::compute {

absl::StatusOr<PoolGeometry> ResolvePool(const InferContext& c, const TensorType& images) {
  if (images.shape.rank() != 4 || !IsFloating(images.dtype)) return c.Error("images must be floats [N, H, W, C]");
  const std::vector<int64_t>& size = c.attrs.GetInts("ksize");
  const absl::StatusOr<Window2D> window = ResolveWindow(c.attrs, images.shape, {size[0], size[1]});
  if (!window.ok()) return c.Error(window.status().message());
  if (size[0] * size[1] > kMaxPositions) {
    return c.Error(absl::StrCat("window ", size[0], "x", size[1], " exceeds ", kMaxPositions, " positions"));
  }
  for (const WindowAxis& axis : {window->height, window->width}) {
    if (axis.before >= axis.window || axis.after >= axis.window) {
      return c.Error(
          absl::StrCat("padding ", axis.before, " and ", axis.after, " must be below the window's ", axis.window));
    }
  }
  const TensorType output{images.dtype,
                          {images.shape.dim(0), window->height.output, window->width.output, images.shape.dim(3)}};
  return PoolGeometry{images, output, *window};
}

PoolGeometry PoolGeometryOf(const Node& node) {
  const bool forward = node.Is(op::MaxPool) || node.Is(op::AvgPool);
  const TensorType& images = forward ? node.input(0).type() : node.output_types()[0];
  // The node's own shape rule has accepted these.
  return ResolvePool({node.op().name, node.inputs(), node.attrs()}, images).value();
}

}  // namespace official::compute
