#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv/geometry.h"

namespace official::compute {
namespace {

namespace backprop_input = conv2d_backprop_input;
namespace backprop_filter = conv2d_backprop_filter;

using Types = absl::StatusOr<std::vector<TensorType>>;

std::vector<int64_t> Dims(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

// A node's attributes with one more: how the backward ops know the shape of what they compute.
Attrs With(Attrs attrs, absl::string_view name, const Shape& shape) {
  attrs.Set(name, Dims(shape));
  return attrs;
}

Attrs Without(const Attrs& attrs, absl::string_view name) {
  Attrs result;
  for (const auto& [key, value] : attrs.values()) {
    if (key != name) result.Set(key, value);
  }
  return result;
}

// Conv2D(images, filters)
Types InferForward(const InferContext& c) {
  if (c.num_inputs() != 2) return c.Error("takes images and filters");
  ASSIGN_OR_RETURN(const ConvGeometry conv, ResolveConv(c, c.type(conv2d::kImages), c.type(conv2d::kFilters)));
  return std::vector<TensorType>{conv.output};
}

// FusedConv2D(images, filters, bias; activation "" or "Relu")
Types InferFused(const InferContext& c) {
  if (c.num_inputs() != 3) return c.Error("takes images, filters and bias");
  ASSIGN_OR_RETURN(const ConvGeometry conv, ResolveConv(c, c.type(conv2d::kImages), c.type(conv2d::kFilters)));
  if (c.type(conv2d::kBias) != TensorType{conv.output.dtype, {conv.output.shape.dim(3)}}) {
    return c.Error("the bias must have one number per filter");
  }
  return std::vector<TensorType>{conv.output};
}

// Conv2DBackpropInput(filters, output gradient; input_shape)
Types InferBackpropInput(const InferContext& c) {
  if (c.num_inputs() != 2) return c.Error("takes filters and the output's gradient");
  const TensorType& filters = c.type(backprop_input::kFilters);
  const TensorType images{filters.dtype, Shape(c.attrs.GetInts("input_shape"))};
  ASSIGN_OR_RETURN(const ConvGeometry conv, ResolveConv(c, images, filters));
  if (c.type(backprop_input::kDy) != conv.output) {
    return c.Error(absl::StrCat("the gradient must be ", conv.output.ToString()));
  }
  return std::vector<TensorType>{images};
}

absl::StatusOr<TensorType> FilterGradient(const InferContext& c) {
  if (c.num_inputs() != 2) return c.Error("takes images and the output's gradient");
  const TensorType& images = c.type(backprop_filter::kImages);
  const TensorType filters{images.dtype, Shape(c.attrs.GetInts("filter_shape"))};
  ASSIGN_OR_RETURN(const ConvGeometry conv, ResolveConv(c, images, filters));
  if (c.type(backprop_filter::kDy) != conv.output) {
    return c.Error(absl::StrCat("the gradient must be ", conv.output.ToString()));
  }
  return filters;
}

// Conv2DBackpropFilter(images, output gradient; filter_shape)
Types InferBackpropFilter(const InferContext& c) {
  ASSIGN_OR_RETURN(const TensorType filters, FilterGradient(c));
  return std::vector<TensorType>{filters};
}

// FusedConv2DBackpropFilter(images, output gradient; filter_shape) -> gradients of filters and bias
Types InferFusedBackpropFilter(const InferContext& c) {
  ASSIGN_OR_RETURN(const TensorType filters, FilterGradient(c));
  return std::vector<TensorType>{filters, {filters.dtype, {filters.shape.dim(3)}}};
}

// A convolution is linear in images and in filters, so each of the three ops is the gradient of the other two.
Value BackpropInput(Value filters, Value dy, const Attrs& attrs, const Shape& input_shape) {
  return Apply(op::Conv2DBackpropInput, {filters, dy}, With(attrs, "input_shape", input_shape));
}
Value BackpropFilter(Value images, Value dy, const Attrs& attrs, const Shape& filter_shape) {
  return Apply(op::Conv2DBackpropFilter, {images, dy}, With(attrs, "filter_shape", filter_shape));
}

std::vector<Value> ForwardGradient(const Node& node, absl::Span<const Value> dy) {
  const Value images = node.input(conv2d::kImages), filters = node.input(conv2d::kFilters);
  return {BackpropInput(filters, dy[0], node.attrs(), images.shape()),
          BackpropFilter(images, dy[0], node.attrs(), filters.shape())};
}

std::vector<Value> BackpropInputGradient(const Node& node, absl::Span<const Value> d_result) {
  const Value filters = node.input(backprop_input::kFilters), dy = node.input(backprop_input::kDy);
  const Attrs attrs = Without(node.attrs(), "input_shape");
  return {BackpropFilter(d_result[0], dy, attrs, filters.shape()), Apply(op::Conv2D, {d_result[0], filters}, attrs)};
}

std::vector<Value> BackpropFilterGradient(const Node& node, absl::Span<const Value> d_result) {
  const Value images = node.input(backprop_filter::kImages), dy = node.input(backprop_filter::kDy);
  const Attrs attrs = Without(node.attrs(), "filter_shape");
  const Value d_filters = d_result[backprop_filter::kFilterGradient];
  return {BackpropInput(d_filters, dy, attrs, images.shape()), Apply(op::Conv2D, {images, d_filters}, attrs)};
}

const bool registered[] = {
    RegisterOp({.name = op::Conv2D, .infer = InferForward, .gradient = ForwardGradient}),
    RegisterOp({.name = op::Conv2DBackpropInput, .infer = InferBackpropInput, .gradient = BackpropInputGradient}),
    RegisterOp({.name = op::Conv2DBackpropFilter, .infer = InferBackpropFilter, .gradient = BackpropFilterGradient}),
    RegisterOp({.name = op::FusedConv2D, .infer = InferFused}),
    RegisterOp({.name = op::FusedConv2DBackpropFilter, .infer = InferFusedBackpropFilter}),
};

}  // namespace

Value Conv2D(Value images, Value filters, const Conv2DParams& params) {
  return Apply(op::Conv2D, {images, filters}, WindowAttrs(params));
}

}  // namespace official::compute
