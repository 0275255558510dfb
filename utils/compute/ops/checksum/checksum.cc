#include "utils/compute/ops/checksum/checksum.h"

#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

const bool registered = RegisterOp({
    .name = op::Checksum,
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      if (c.num_inputs() == 0) return c.Error("needs at least one tensor");
      return std::vector<TensorType>{{DType::kInt64, {c.num_inputs()}}};
    },
});

}  // namespace

Value Checksum(absl::Span<const Value> tensors) { return Apply(op::Checksum, tensors); }

}  // namespace official::compute
