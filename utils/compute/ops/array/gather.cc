// Gather, its gradient IndexedSlices, AddRows, and OneHot.

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> InferGather(const InferContext& c) {
  if (c.num_inputs() != 2 || c.shape(gather::kParams).rank() < 1) {
    return c.Error("needs params of rank 1 or more and indices");
  }
  if (c.dtype(gather::kIndices) != DType::kInt32) return c.Error("needs int32 indices");
  std::vector<int64_t> dims(c.shape(gather::kIndices).dims().begin(), c.shape(gather::kIndices).dims().end());
  const absl::Span<const int64_t> row = c.shape(gather::kParams).dims().subspan(1);
  dims.insert(dims.end(), row.begin(), row.end());
  return std::vector<TensorType>{{c.dtype(gather::kParams), Shape(dims)}};
}

std::vector<Value> GatherGradient(const Node& node, absl::Span<const Value> dy) {
  const Value params = node.input(gather::kParams), indices = node.input(gather::kIndices);
  if (!IsFloating(params.dtype())) return {Value(), Value()};
  const int64_t n = indices.shape().num_elements();
  std::vector<int64_t> rows(params.shape().dims().begin(), params.shape().dims().end());
  rows[0] = n;
  // Optimizers look at what has made the indices (AreCaughtUp), so nothing may come between without need.
  const Value flat = indices.shape().rank() == 1 ? indices : Reshape(indices, {n});
  return {IndexedSlices(flat, Reshape(dy[gather::kY], std::move(rows)), params.shape()), Value()};
}

absl::StatusOr<std::vector<TensorType>> InferIndexedSlices(const InferContext& c) {
  const Shape dense(c.attrs.GetInts("shape"));
  if (c.num_inputs() != 2 || c.dtype(indexed_slices::kIndices) != DType::kInt32 ||
      c.shape(indexed_slices::kIndices).rank() != 1) {
    return c.Error("needs int32 indices [n] and rows");
  }
  Shape rows = dense;
  if (dense.rank() >= 1) rows.set_dim(0, c.shape(indexed_slices::kIndices).dim(0));
  if (dense.rank() < 1 || c.shape(indexed_slices::kRows) != rows || !IsStorageType(c.dtype(indexed_slices::kRows))) {
    return c.Error(absl::StrCat("needs one float32, bfloat16 or half row of ", dense.ToString(), " for each index"));
  }
  return std::vector<TensorType>{{c.dtype(indexed_slices::kRows), dense}};
}

absl::StatusOr<std::vector<TensorType>> InferAddRows(const InferContext& c) {
  if (c.num_inputs() != 3 || c.shape(add_rows::kX).rank() < 1 || !IsStorageType(c.dtype(add_rows::kX)) ||
      c.dtype(add_rows::kIndices) != DType::kInt32 || c.shape(add_rows::kIndices).rank() != 1) {
    return c.Error("needs x [V, ...] of float32, bfloat16 or half, int32 indices [n] and rows");
  }
  Shape rows = c.shape(add_rows::kX);
  rows.set_dim(0, c.shape(add_rows::kIndices).dim(0));
  if (c.type(add_rows::kRows) != TensorType{c.dtype(add_rows::kX), rows}) {
    return c.Error("needs one row of x for each index");
  }
  return std::vector<TensorType>{c.type(add_rows::kX)};
}

absl::StatusOr<std::vector<TensorType>> InferOneHot(const InferContext& c) {
  if (c.num_inputs() != 1 || (c.dtype(0) != DType::kInt32 && c.dtype(0) != DType::kInt64)) {
    return c.Error("needs int32 or int64 indices");
  }
  const int64_t depth = c.attrs.GetInt("depth");
  if (depth < 0) return c.Error(absl::StrCat("needs a depth of at least 0, got ", depth));
  const DType dtype = c.attrs.Get<DType>("dtype");
  if (!IsStorageType(dtype)) return c.Error("makes float32, bfloat16 or half");
  std::vector<int64_t> dims(c.shape(0).dims().begin(), c.shape(0).dims().end());
  dims.push_back(depth);
  return std::vector<TensorType>{{dtype, Shape(dims)}};
}

const bool registered = [] {
  RegisterOp({.name = op::Gather,
              .infer = InferGather,
              .gradient = GatherGradient,
              .row_ids = [](const Node&, int input) -> std::optional<int> {
                if (input != gather::kParams) return std::nullopt;
                return gather::kIndices;
              }});
  RegisterOp(
      {.name = op::IndexedSlices,
       .infer = InferIndexedSlices,
       .gradient =
           [](const Node& node, absl::Span<const Value> dy) {
             return std::vector<Value>{Value(), Gather(dy[indexed_slices::kY], node.input(indexed_slices::kIndices))};
           },
       .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = op::AddRows, .infer = InferAddRows, .tolerance = {1e-6, 1e-2}});
  RegisterOp({.name = op::OneHot, .infer = InferOneHot});
  return true;
}();

}  // namespace

Value Gather(Value params, Value indices) { return Apply(op::Gather, {params, indices}); }

Value IndexedSlices(Value indices, Value rows, const Shape& dense_shape) {
  return Apply(op::IndexedSlices, {indices, rows},
               Attrs{{"shape", std::vector<int64_t>(dense_shape.dims().begin(), dense_shape.dims().end())}});
}

Value AddRows(Value x, Value indices, Value rows) { return Apply(op::AddRows, {x, indices, rows}); }

Value OneHot(Value indices, int64_t depth, DType dtype) {
  return Apply(op::OneHot, {indices}, Attrs{{"depth", depth}, {"dtype", dtype}});
}

Value ZerosLike(Value x) {
  if (!x) return x;
  return BroadcastTo(x.graph()->Constant(Tensor(x.dtype(), {})), x.shape());
}

}  // namespace official::compute
