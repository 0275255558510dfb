#include "utils/compute/ops/top_k/top_k.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {
namespace {

Shape WithLast(const Shape& shape, int64_t last) {
  Shape result = shape;
  result.set_dim(-1, last);
  return result;
}

const bool registered[] = {
    RegisterOp({
        .name = op::ArgMax,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          if (c.num_inputs() != 1 || c.shape(0).rank() < 1 || c.shape(0).dim(-1) < 1) {
            return c.Error("needs a last dimension of at least 1");
          }
          return std::vector<TensorType>{{DType::kInt64, RowShape(c.shape(0))}};
        },
        .tolerance = {0, 0},
    }),
    RegisterOp({
        .name = op::TopK,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          const int64_t k = c.attrs.GetInt("k");
          if (c.num_inputs() != 1 || c.shape(top_k::kX).rank() < 1 || k < 1 || k > c.shape(top_k::kX).dim(-1)) {
            return c.Error(absl::StrCat("needs 1 <= k <= the last dimension, got k = ", k));
          }
          const Shape shape = WithLast(c.shape(top_k::kX), k);
          return std::vector<TensorType>{{c.dtype(top_k::kX), shape}, {DType::kInt32, shape}};
        },
        .tolerance = {0, 0},
    }),
};

}  // namespace

Value ArgMax(Value x) { return Apply(op::ArgMax, {x}); }

std::pair<Value, Value> TopK(Value x, int k) {
  Node* node = ApplyNode(op::TopK, {x}, Attrs{{"k", int64_t{k}}});
  return {OutputOf(node, top_k::kValues), OutputOf(node, top_k::kIndices)};
}

}  // namespace official::compute
