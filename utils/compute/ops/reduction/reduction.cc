#include "utils/compute/ops/reduction/reduction.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
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
  return Apply("Reshape", {x}, Attrs{{"shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end())}});
}

// A value of the node's output type, with the reduced axes back as 1.
Value WithReducedAxes(const Node& node, Value v) {
  return ReshapeTo(v, ReducedShape(node.input(0).shape(), ReducedAxes(node), /*keep_dims=*/true));
}

Value Cast(Value x, DType dtype) { return x.dtype() == dtype ? x : Apply("Cast", {x}, Attrs{{"dtype", dtype}}); }

Value SpreadOverInput(const Node& node, Value dy) {
  const absl::Span<const int64_t> dims = node.input(0).shape().dims();
  return Apply("BroadcastTo", {WithReducedAxes(node, dy)},
               Attrs{{"shape", std::vector<int64_t>(dims.begin(), dims.end())}});
}

std::vector<Value> SumGradient(const Node& node, absl::Span<const Value> dy) { return {SpreadOverInput(node, dy[0])}; }

std::vector<Value> MeanGradient(const Node& node, absl::Span<const Value> dy) {
  const Value x = node.input(0);
  const int64_t results = node.output_types()[0].shape.num_elements();
  // In float: bfloat16 does not hold the number of elements.
  const Value count =
      x.graph()->Constant(Tensor::Scalar(static_cast<float>(results == 0 ? 0 : x.shape().num_elements() / results)));
  const Value share = Cast(Apply("Div", {Cast(dy[0], DType::kFloat32), count}), x.dtype());
  return {SpreadOverInput(node, share)};
}

std::vector<Value> ExtremeGradient(const Node& node, absl::Span<const Value> dy) {
  const Value x = node.input(0);
  const Value chosen = Cast(Apply("Equal", {x, WithReducedAxes(node, node.output(0))}), x.dtype());
  const Value ties = Sum(chosen, node.attrs().GetInts("axes"), /*keep_dims=*/true);
  return {Apply("Mul", {Apply("Div", {chosen, ties}), WithReducedAxes(node, dy[0])})};
}

const bool registered = [] {
  RegisterOp({.name = "Sum", .infer = InferReduction, .gradient = SumGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = "Mean", .infer = InferReduction, .gradient = MeanGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = "Max", .infer = InferReduction, .gradient = ExtremeGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = "Min", .infer = InferReduction, .gradient = ExtremeGradient, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = "BiasAddGrad", .infer = InferBiasAddGrad, .tolerance = {1e-6, 1e-2}});
  return true;
}();

Value Reduce(absl::string_view op, Value x, std::vector<int64_t> axes, bool keep_dims) {
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

Value Sum(Value x, std::vector<int64_t> axes, bool keep_dims) { return Reduce("Sum", x, std::move(axes), keep_dims); }
Value Mean(Value x, std::vector<int64_t> axes, bool keep_dims) { return Reduce("Mean", x, std::move(axes), keep_dims); }
Value Max(Value x, std::vector<int64_t> axes, bool keep_dims) { return Reduce("Max", x, std::move(axes), keep_dims); }
Value Min(Value x, std::vector<int64_t> axes, bool keep_dims) { return Reduce("Min", x, std::move(axes), keep_dims); }

Value BiasAddGrad(Value dy) { return Apply("BiasAddGrad", {dy}); }

}  // namespace official::compute
