#include "utils/compute/ops/l2_loss/l2_loss.h"

#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/elementwise.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> Infer(const InferContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.dtype(i) != DType::kFloat32) return c.Error("needs float32 inputs");
  }
  if (c.num_inputs() == 0) return c.Error("needs an input");
  return std::vector<TensorType>{{DType::kFloat32, {}}};
}

std::vector<Value> Gradient(const Node& node, absl::Span<const Value> dy) {
  std::vector<Value> gradients;
  for (const Value& v : node.inputs()) gradients.push_back(Mul(v, dy[0]));
  return gradients;
}

const bool registered =
    RegisterOp({.name = op::L2Loss, .infer = Infer, .gradient = Gradient, .tolerance = {.float32 = 1e-6}});

}  // namespace

Value L2Loss(absl::Span<const Value> values) { return Apply(op::L2Loss, values); }

}  // namespace official::compute
