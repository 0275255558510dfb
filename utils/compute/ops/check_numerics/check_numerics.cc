#include "utils/compute/ops/check_numerics/check_numerics.h"

#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

const bool registered = RegisterOp({
    .name = op::CheckNumerics,
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      if (c.num_inputs() != 1 || !IsFloating(c.dtype(0))) return c.Error("needs a floating tensor");
      return std::vector<TensorType>{c.type(0)};
    },
    .gradient = [](const Node&, absl::Span<const Value> dy) { return std::vector<Value>{dy[0]}; },
    .has_side_effect = true,
    .tolerance = {1e-6, 1e-2},
});

}  // namespace

Value CheckNumerics(Value x) { return Apply(op::CheckNumerics, {x}); }

}  // namespace official::compute
