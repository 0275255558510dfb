#include "utils/compute/ops/layer_norm/layer_norm.h"

#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {
namespace {

// Outputs: y, and of each row the mean and 1 / sqrt(variance + epsilon), which the gradient reads.
absl::StatusOr<std::vector<TensorType>> LayerNormType(const InferContext& c) {
  if (c.num_inputs() != 3 || !IsFloating(c.dtype(0)) || c.shape(0).rank() < 1 || c.shape(0).dim(-1) < 1) {
    return c.Error("needs a floating input [..., C] with C of at least 1, gamma and beta");
  }
  const TensorType parameter{DType::kFloat32, {c.shape(0).dim(-1)}};
  if (c.type(1) != parameter || c.type(2) != parameter) return c.Error("needs float32 gamma [C] and beta [C]");
  const TensorType row_statistic{DType::kFloat32, RowShape(c.shape(0))};
  return std::vector<TensorType>{c.type(0), row_statistic, row_statistic};
}

// Inputs x, gamma, mean, 1 / standard deviation, dy; outputs dx, dgamma, dbeta.
absl::StatusOr<std::vector<TensorType>> LayerNormGradType(const InferContext& c) {
  if (c.num_inputs() != 5 || c.type(4) != c.type(0)) return c.Error("needs the forward pass's values and dy");
  return std::vector<TensorType>{c.type(0), c.type(1), c.type(1)};
}

std::vector<Value> LayerNormGradient(const Node& node, absl::Span<const Value> dy) {
  if (!dy[0]) return {Value(), Value(), Value()};
  const Node* gradient =
      ApplyNode("LayerNormGrad", {node.input(0), node.input(1), node.output(1), node.output(2), dy[0]});
  if (gradient == nullptr) return {Value(), Value(), Value()};
  return {gradient->output(0), gradient->output(1), gradient->output(2)};
}

const bool layer_norm = RegisterOp({
    .name = "LayerNorm",
    .infer = LayerNormType,
    .gradient = LayerNormGradient,
    .tolerance = {1e-5, 2e-2},
});
const bool layer_norm_grad = RegisterOp({
    .name = "LayerNormGrad",
    .infer = LayerNormGradType,
    .tolerance = {1e-5, 2e-2},
});

}  // namespace

Value LayerNorm(Value x, Value gamma, Value beta, float epsilon) {
  return Apply("LayerNorm", {x, gamma, beta}, Attrs{{"epsilon", static_cast<double>(epsilon)}});
}

}  // namespace official::compute
