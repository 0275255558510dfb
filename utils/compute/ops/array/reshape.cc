#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> InferReshape(const InferContext& c) {
  if (c.num_inputs() != 1) return c.Error("needs 1 input");
  std::vector<int64_t> dims = c.attrs.GetInts("shape");
  const std::string text = absl::StrCat("[", absl::StrJoin(dims, ","), "]");
  const int64_t count = c.shape(0).num_elements();
  const auto rest = std::find(dims.begin(), dims.end(), -1);
  if (rest != dims.end()) {
    *rest = 1;
    const int64_t others = Shape(dims).num_elements();
    *rest = others > 0 && count % others == 0 ? count / others : -1;
  }
  if (std::any_of(dims.begin(), dims.end(), [](int64_t size) { return size < 0; }) ||
      Shape(dims).num_elements() != count) {
    return c.Error(absl::StrCat("cannot give ", count, " elements the shape ", text));
  }
  return std::vector<TensorType>{{c.dtype(0), Shape(dims)}};
}

absl::StatusOr<std::vector<TensorType>> InferFirstRows(const InferContext& c) {
  if (c.num_inputs() != 1 || c.shape(0).rank() < 1) return c.Error("needs 1 input of rank 1 or more");
  const int64_t rows = c.attrs.GetInt("rows"), all = c.shape(0).dim(0);
  if (rows < 0 || rows > all) return c.Error(absl::StrCat("cannot take ", rows, " of ", all, " rows"));
  TensorType type = c.type(0);
  type.shape.set_dim(0, rows);
  return std::vector<TensorType>{type};
}

const bool registered[] = {
    RegisterOp({
        .name = op::Reshape,
        .infer = InferReshape,
        .gradient =
            [](const Node& node, absl::Span<const Value> dy) {
              const absl::Span<const int64_t> dims = node.input(0).shape().dims();
              return std::vector<Value>{Reshape(dy[0], {dims.begin(), dims.end()})};
            },
        .is_view = true,
    }),
    RegisterOp({.name = op::FirstRows, .infer = InferFirstRows, .is_view = true}),
};

}  // namespace

Value Reshape(Value x, std::vector<int64_t> shape) {
  return Apply(op::Reshape, {x}, Attrs{{"shape", std::move(shape)}});
}

Value FirstRows(Value x, int64_t rows) { return Apply(op::FirstRows, {x}, Attrs{{"rows", rows}}); }

Value ExpandDims(Value x, int axis) {
  if (!x) return x;
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  const int at = axis < 0 ? axis + x.shape().rank() + 1 : axis;
  if (at < 0 || at > x.shape().rank()) {
    x.graph()->Fail(absl::InvalidArgumentError(
        absl::StrCat("ExpandDims: no place ", axis, " among the dimensions of ", x.type().ToString())));
    return Value();
  }
  dims.insert(dims.begin() + at, 1);
  return Reshape(x, std::move(dims));
}

Value Squeeze(Value x, int axis) {
  if (!x) return x;
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  const int at = axis < 0 ? axis + x.shape().rank() : axis;
  if (at < 0 || at >= x.shape().rank() || dims[at] != 1) {
    x.graph()->Fail(absl::InvalidArgumentError(
        absl::StrCat("Squeeze: dimension ", axis, " of ", x.type().ToString(), " is not of size 1")));
    return Value();
  }
  dims.erase(dims.begin() + at);
  return Reshape(x, std::move(dims));
}

}  // namespace official::compute
