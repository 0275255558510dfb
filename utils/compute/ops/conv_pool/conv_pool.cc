#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/conv_pool/geometry.h"

namespace official::compute {
namespace {

namespace forward = conv_pool;
namespace backprop = conv_pool_backprop;

using Types = absl::StatusOr<std::vector<TensorType>>;

absl::StatusOr<ConvPoolGeometry> Resolve(const InferContext& c, const Shape& images, const Shape& filters) {
  if (images.rank() != 4 || filters.rank() != 4 || !IsStorageType(c.dtype(0)) || images.dim(3) != filters.dim(2)) {
    return c.Error("takes float images [N, H, W, C] and filters [K, K, C, O]");
  }
  const ConvPoolGeometry g = ConvPoolGeometryOf(images, filters);
  if (!ConvPoolSupports(g)) {
    return c.Error(absl::StrCat("does not support images ", images.ToString(), " with filters ", filters.ToString()));
  }
  return g;
}

Shape PooledShape(const ConvPoolGeometry& g) { return {g.batch, g.pooled_height(), g.pooled_width(), g.out_channels}; }

Types InferForward(const InferContext& c) {
  if (c.num_inputs() != 3) return c.Error("takes images, filters and bias");
  ASSIGN_OR_RETURN(const ConvPoolGeometry g, Resolve(c, c.shape(forward::kImages), c.shape(forward::kFilters)));
  const DType dtype = c.dtype(forward::kImages);
  if (c.dtype(forward::kFilters) != dtype || c.type(forward::kBias) != TensorType{dtype, {g.out_channels}}) {
    return c.Error("filters and bias must have the images' type, and the bias one number per filter");
  }
  return std::vector<TensorType>{{dtype, PooledShape(g)}, {DType::kUInt8, PooledShape(g)}};
}

// The inputs that the backward ops have in common.
absl::Status CheckPooled(const InferContext& c, const Shape& pooled) {
  if (c.type(backprop::kCodes) == TensorType{DType::kUInt8, pooled} &&
      c.type(backprop::kPooledGradient) == TensorType{c.dtype(0), pooled}) {
    return absl::OkStatus();
  }
  return c.Error(absl::StrCat("codes and gradient must have the shape ", pooled.ToString(), " and types uint8 and ",
                              DTypeName(c.dtype(0))));
}

Types InferBackpropFilter(const InferContext& c) {
  if (c.num_inputs() != 3) return c.Error("takes images, codes and the output's gradient");
  const Shape filters(c.attrs.GetInts("filter_shape"));
  ASSIGN_OR_RETURN(const ConvPoolGeometry g, Resolve(c, c.shape(backprop::kImages), filters));
  RETURN_IF_ERROR(CheckPooled(c, PooledShape(g)));
  return std::vector<TensorType>{{c.dtype(0), filters}, {c.dtype(0), {g.out_channels}}};
}

// The images' shape, from filters and pooled images.
Shape ImagesBefore(const Shape& filters, const Shape& pooled) {
  return {pooled.dim(0), 2 * pooled.dim(1), 2 * pooled.dim(2), filters.dim(2)};
}

Types InferBackpropInput(const InferContext& c) {
  if (c.num_inputs() != 3) return c.Error("takes filters, codes and the output's gradient");
  const Shape &filters = c.shape(backprop::kFilters), &pooled = c.shape(backprop::kCodes);
  if (filters.rank() != 4 || pooled.rank() != 4) return c.Error("filters and codes must have rank 4");
  const Shape images = ImagesBefore(filters, pooled);
  ASSIGN_OR_RETURN(const ConvPoolGeometry g, Resolve(c, images, filters));
  // A vector of one channel would be mostly empty.
  if (g.in_channels == 1) return c.Error("needs images of more than one channel");
  RETURN_IF_ERROR(CheckPooled(c, PooledShape(g)));
  return std::vector<TensorType>{{c.dtype(0), images}};
}

const bool registered[] = {
    RegisterOp({.name = op::FusedConv2DReluMaxPool, .infer = InferForward}),
    RegisterOp({.name = op::FusedConv2DReluMaxPoolBackpropFilter, .infer = InferBackpropFilter}),
    RegisterOp({.name = op::FusedConv2DReluMaxPoolBackpropInput, .infer = InferBackpropInput}),
};

}  // namespace

}  // namespace official::compute
