#include <algorithm>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> InferTranspose(const InferContext& c) {
  if (c.num_inputs() != 1) return c.Error("needs 1 input");
  const std::vector<int64_t>& perm = c.attrs.GetInts("perm");
  const int rank = c.shape(0).rank();
  std::vector<bool> seen(rank, false);
  std::vector<int64_t> dims;
  for (const int64_t d : perm) {
    if (d < 0 || d >= rank || seen[d]) break;
    seen[d] = true;
    dims.push_back(c.shape(0).dim(static_cast<int>(d)));
  }
  if (static_cast<int>(perm.size()) != rank || static_cast<int>(dims.size()) != rank) {
    return c.Error("needs each dimension once in perm");
  }
  return std::vector<TensorType>{{c.dtype(0), Shape(dims)}};
}

const bool registered = RegisterOp({
    .name = op::Transpose,
    .infer = InferTranspose,
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          const std::vector<int64_t>& perm = node.attrs().GetInts("perm");
          std::vector<int64_t> inverse(perm.size());
          for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
          return std::vector<Value>{Transpose(dy[0], std::move(inverse))};
        },
});

}  // namespace

Value Transpose(Value x, std::vector<int64_t> perm) {
  return Apply(op::Transpose, {x}, Attrs{{"perm", std::move(perm)}});
}

}  // namespace official::compute
