// Concat, Slice and Pad: they move boxes of elements, and each one's gradient is made of the others.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"

namespace official::compute {
namespace {

std::vector<int64_t> DimsOf(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

absl::StatusOr<std::vector<TensorType>> InferConcat(const InferContext& c) {
  if (c.num_inputs() < 1) return c.Error("needs an input");
  const int64_t axis = c.attrs.GetInt("axis");
  Shape shape = c.shape(0);
  const int64_t at = axis < 0 ? axis + shape.rank() : axis;
  if (at < 0 || at >= shape.rank()) return c.Error(absl::StrCat("has no axis ", axis));
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.dtype(i) != c.dtype(0)) return c.Error("needs inputs of one type");
    if (c.shape(i).rank() != shape.rank()) return c.Error("needs inputs of one rank");
    for (int d = 0; d < shape.rank(); ++d) {
      if (d != at && c.shape(i).dim(d) != shape.dim(d)) {
        return c.Error(absl::StrCat("needs inputs that differ in dimension ", at, " only"));
      }
    }
    shape.set_dim(static_cast<int>(at), shape.dim(static_cast<int>(at)) + c.shape(i).dim(static_cast<int>(at)));
  }
  return std::vector<TensorType>{{c.dtype(0), shape}};
}

std::vector<Value> ConcatGradient(const Node& node, absl::Span<const Value> dy) {
  const int64_t axis = node.attrs().GetInt("axis");
  const int at = static_cast<int>(axis < 0 ? axis + dy[0].shape().rank() : axis);
  std::vector<int64_t> begin(dy[0].shape().rank(), 0);
  std::vector<Value> gradients;
  for (const Value& input : node.inputs()) {
    gradients.push_back(IsFloating(input.dtype()) ? Slice(dy[0], begin, DimsOf(input.shape())) : Value());
    begin[at] += input.shape().dim(at);
  }
  return gradients;
}

absl::StatusOr<std::vector<TensorType>> InferSlice(const InferContext& c) {
  if (c.num_inputs() != 1) return c.Error("needs 1 input");
  const std::vector<int64_t>&begin = c.attrs.GetInts("begin"), &size = c.attrs.GetInts("size");
  const Shape& shape = c.shape(0);
  if (static_cast<int>(begin.size()) != shape.rank() || static_cast<int>(size.size()) != shape.rank()) {
    return c.Error("needs a begin and a size for each dimension");
  }
  for (int d = 0; d < shape.rank(); ++d) {
    if (begin[d] < 0 || size[d] < 0 || size[d] > shape.dim(d) - begin[d]) {
      return c.Error(absl::StrCat("begin ", begin[d], " and size ", size[d], " are outside dimension ", d));
    }
  }
  return std::vector<TensorType>{{c.dtype(0), Shape(size)}};
}

std::vector<Value> SliceGradient(const Node& node, absl::Span<const Value> dy) {
  const std::vector<int64_t>&begin = node.attrs().GetInts("begin"), &size = node.attrs().GetInts("size");
  std::vector<int64_t> paddings;
  for (size_t d = 0; d < begin.size(); ++d) {
    paddings.push_back(begin[d]);
    paddings.push_back(node.input(0).shape().dim(static_cast<int>(d)) - begin[d] - size[d]);
  }
  return {Pad(dy[0], std::move(paddings))};
}

absl::StatusOr<std::vector<TensorType>> InferPad(const InferContext& c) {
  if (c.num_inputs() != 1) return c.Error("needs 1 input");
  const std::vector<int64_t>& paddings = c.attrs.GetInts("paddings");
  Shape shape = c.shape(0);
  if (static_cast<int>(paddings.size()) != 2 * shape.rank() ||
      std::any_of(paddings.begin(), paddings.end(), [](int64_t p) { return p < 0; })) {
    return c.Error("needs two paddings of at least 0 for each dimension");
  }
  for (int d = 0; d < shape.rank(); ++d) shape.set_dim(d, shape.dim(d) + paddings[2 * d] + paddings[2 * d + 1]);
  return std::vector<TensorType>{{c.dtype(0), shape}};
}

std::vector<Value> PadGradient(const Node& node, absl::Span<const Value> dy) {
  const std::vector<int64_t>& paddings = node.attrs().GetInts("paddings");
  std::vector<int64_t> begin;
  for (size_t i = 0; i < paddings.size(); i += 2) begin.push_back(paddings[i]);
  return {Slice(dy[0], std::move(begin), DimsOf(node.input(0).shape()))};
}

const bool registered = [] {
  RegisterOp({.name = op::Concat, .infer = InferConcat, .gradient = ConcatGradient});
  RegisterOp({.name = op::Slice, .infer = InferSlice, .gradient = SliceGradient});
  RegisterOp({.name = op::Pad, .infer = InferPad, .gradient = PadGradient});
  return true;
}();

}  // namespace

Value Concat(absl::Span<const Value> inputs, int axis) {
  return Apply(op::Concat, inputs, Attrs{{"axis", static_cast<int64_t>(axis)}});
}

Value Slice(Value x, std::vector<int64_t> begin, std::vector<int64_t> size) {
  return Apply(op::Slice, {x}, Attrs{{"begin", std::move(begin)}, {"size", std::move(size)}});
}

Value Pad(Value x, std::vector<int64_t> paddings) {
  return Apply(op::Pad, {x}, Attrs{{"paddings", std::move(paddings)}});
}

Value Stack(absl::Span<const Value> inputs, int axis) {
  std::vector<Value> expanded;
  for (const Value& input : inputs) expanded.push_back(ExpandDims(input, axis));
  return Concat(expanded, axis);
}

std::vector<Value> Unstack(Value x, int axis) {
  std::vector<Value> result;
  if (!x) return result;
  const int rank = x.shape().rank(), at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank) {
    x.graph()->Fail(absl::InvalidArgumentError(absl::StrCat("Unstack: ", x.type().ToString(), " has no axis ", axis)));
    return result;
  }
  std::vector<int64_t> begin(rank, 0), size = DimsOf(x.shape());
  size[at] = 1;
  for (; begin[at] < x.shape().dim(at); ++begin[at]) result.push_back(Squeeze(Slice(x, begin, size), at));
  return result;
}

}  // namespace official::compute
