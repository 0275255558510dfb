#include "utils/compute/ops/reduction/reduction.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/passes.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> InferReduction(const InferContext& c) {
  if (c.num_inputs() != 1 || !IsFloating(c.dtype(0))) return c.Error("needs 1 floating input");
  const Shape& shape = c.shape(0);
  std::vector<bool> reduced(shape.rank(), false);
  for (const int64_t axis : c.attrs.GetInts("axes")) {
    const int64_t i = axis < 0 ? axis + shape.rank() : axis;
    if (i < 0 || i >= shape.rank()) return c.Error(absl::StrCat("has no axis ", axis));
    if (reduced[i]) return c.Error(absl::StrCat("reduces axis ", axis, " twice"));
    reduced[i] = true;
  }
  return std::vector<TensorType>{{c.dtype(0), ReducedShape(shape, reduced, c.attrs.GetBool("keep_dims"))}};
}

absl::StatusOr<std::vector<TensorType>> InferBiasAddGrad(const InferContext& c) {
  if (c.num_inputs() != 1 || !IsFloating(c.dtype(0)) || c.shape(0).rank() < 1) {
    return c.Error("needs 1 floating input of rank 1 or more");
  }
  return std::vector<TensorType>{{c.dtype(0), {c.shape(0).dim(-1)}}};
}

Value ReshapeTo(Value x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return Reshape(x, {shape.dims().begin(), shape.dims().end()});
}

// A value of the node's output type, with the reduced axes back as 1.
Value WithReducedAxes(const Node& node, Value v) {
  return ReshapeTo(v, ReducedShape(node.input(0).shape(), ReducedAxes(node), /*keep_dims=*/true));
}

Value SpreadOverInput(const Node& node, Value dy) {
  return BroadcastTo(WithReducedAxes(node, dy), node.input(0).shape());
}

std::vector<Value> SumGradient(const Node& node, absl::Span<const Value> dy) { return {SpreadOverInput(node, dy[0])}; }

std::vector<Value> MeanGradient(const Node& node, absl::Span<const Value> dy) {
  const Value x = node.input(0);
  const int64_t results = node.output_types()[0].shape.num_elements();
  // In float: bfloat16 does not hold the number of elements.
  const Value count =
      x.graph()->Constant(Tensor::Scalar(static_cast<float>(results == 0 ? 0 : x.shape().num_elements() / results)));
  const Value share = Cast(Div(Cast(dy[0], DType::kFloat32), count), x.dtype());
  return {SpreadOverInput(node, share)};
}

std::vector<Value> ExtremeGradient(const Node& node, absl::Span<const Value> dy) {
  const Value x = node.input(0);
  const Value chosen = Cast(Equal(x, WithReducedAxes(node, node.output(0))), x.dtype());
  const Value ties = Sum(chosen, node.attrs().GetInts("axes"), /*keep_dims=*/true);
  const Value share = Div(chosen, ties);
  return {Mul(share, WithReducedAxes(node, dy[0]))};
}

const bool registered = [] {
  RegisterOp({.name = op::Sum, .infer = InferReduction, .gradient = SumGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = op::Mean, .infer = InferReduction, .gradient = MeanGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = op::Max, .infer = InferReduction, .gradient = ExtremeGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = op::Min, .infer = InferReduction, .gradient = ExtremeGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = op::BiasAddGrad, .infer = InferBiasAddGrad, .tolerance = {1e-6, 1e-2}});
  return true;
}();

Value Reduce(OpName op, Value x, std::vector<int64_t> axes, bool keep_dims) {
  return Apply(op, {x}, Attrs{{"axes", std::move(axes)}, {"keep_dims", keep_dims}});
}

std::vector<int64_t> AllAxes(Value x) {
  std::vector<int64_t> axes(x.shape().rank());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace

Value Sum(Value x) { return Sum(x, AllAxes(x)); }
Value Mean(Value x) { return Mean(x, AllAxes(x)); }
Value Max(Value x) { return Max(x, AllAxes(x)); }
Value Min(Value x) { return Min(x, AllAxes(x)); }

Value Sum(Value x, std::vector<int64_t> axes, bool keep_dims) { return Reduce(op::Sum, x, std::move(axes), keep_dims); }
Value Mean(Value x, std::vector<int64_t> axes, bool keep_dims) {
  return Reduce(op::Mean, x, std::move(axes), keep_dims);
}
Value Max(Value x, std::vector<int64_t> axes, bool keep_dims) { return Reduce(op::Max, x, std::move(axes), keep_dims); }
Value Min(Value x, std::vector<int64_t> axes, bool keep_dims) { return Reduce(op::Min, x, std::move(axes), keep_dims); }

Value BiasAddGrad(Value dy) { return Apply(op::BiasAddGrad, {dy}); }

}  // namespace official::compute
