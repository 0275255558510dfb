#include "utils/compute/ops/pooling/pooling.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/pooling/geometry.h"

namespace official::compute {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

// MaxPool(images) -> values, codes
Types InferMaxPool(const InferContext& c) {
  if (c.num_inputs() != 1) return c.Error("takes images");
  ASSIGN_OR_RETURN(const PoolGeometry pool, ResolvePool(c, c.type(0)));
  return std::vector<TensorType>{pool.output, {DType::kUInt8, pool.output.shape}};
}

Types InferAvgPool(const InferContext& c) {
  if (c.num_inputs() != 1) return c.Error("takes images");
  ASSIGN_OR_RETURN(const PoolGeometry pool, ResolvePool(c, c.type(0)));
  return std::vector<TensorType>{pool.output};
}

// AvgPoolGrad(output gradient; input_shape) and MaxPoolGrad(output gradient, codes; input_shape)
Types InferGradient(const InferContext& c) {
  if (c.num_inputs() < 1) return c.Error("takes the output's gradient");
  const TensorType images{c.dtype(0), Shape(c.attrs.GetInts("input_shape"))};
  ASSIGN_OR_RETURN(const PoolGeometry pool, ResolvePool(c, images));
  if (c.type(0) != pool.output) return c.Error(absl::StrCat("the gradient must be ", pool.output.ToString()));
  return std::vector<TensorType>{images};
}
Types InferMaxPoolGrad(const InferContext& c) {
  if (c.num_inputs() != 2 || c.type(max_pool_grad::kCodes) != TensorType{DType::kUInt8, c.shape(max_pool_grad::kDy)}) {
    return c.Error("takes the output's gradient and codes of its shape");
  }
  return InferGradient(c);
}

Attrs WithInputShape(const Node& node) {
  Attrs attrs = node.attrs();
  const absl::Span<const int64_t> dims = node.input(0).shape().dims();
  attrs.Set("input_shape", std::vector<int64_t>(dims.begin(), dims.end()));
  return attrs;
}

std::vector<Value> MaxPoolGradient(const Node& node, absl::Span<const Value> dy) {
  if (!dy[max_pool::kY]) return {Value()};
  return {Apply(op::MaxPoolGrad, {dy[max_pool::kY], node.output(max_pool::kCodes)}, WithInputShape(node))};
}

std::vector<Value> AvgPoolGradient(const Node& node, absl::Span<const Value> dy) {
  return {Apply(op::AvgPoolGrad, {dy[0]}, WithInputShape(node))};
}

Attrs PoolAttrs(const PoolParams& params) {
  Attrs attrs = WindowAttrs({.stride = params.stride, .padding = params.padding, .border = params.border});
  attrs.Set("ksize", std::vector<int64_t>{params.window.height, params.window.width});
  return attrs;
}

const bool registered[] = {
    RegisterOp({.name = op::MaxPool, .infer = InferMaxPool, .gradient = MaxPoolGradient}),
    RegisterOp({.name = op::MaxPoolGrad, .infer = InferMaxPoolGrad}),
    RegisterOp({.name = op::AvgPool, .infer = InferAvgPool, .gradient = AvgPoolGradient}),
    RegisterOp({.name = op::AvgPoolGrad, .infer = InferGradient}),
};

}  // namespace

Value MaxPool(Value images, const PoolParams& params) { return Apply(op::MaxPool, {images}, PoolAttrs(params)); }
Value AvgPool(Value images, const PoolParams& params) { return Apply(op::AvgPool, {images}, PoolAttrs(params)); }

}  // namespace official::compute
