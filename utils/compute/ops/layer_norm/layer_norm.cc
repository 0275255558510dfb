#include "utils/compute/ops/layer_norm/layer_norm.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
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
      ApplyNode(op::LayerNormGrad, {node.input(0), node.input(1), node.output(1), node.output(2), dy[0]});
  if (gradient == nullptr) return {Value(), Value(), Value()};
  return {gradient->output(0), gradient->output(1), gradient->output(2)};
}

bool Drops(const Attrs& attrs) { return attrs.GetFloat("dropout_rate") > 0; }

// Inputs x, sublayer, gamma, beta, offsets[, random state]; outputs: the sum, y, and of each row the mean and 1 /
// standard deviation.
absl::StatusOr<std::vector<TensorType>> ResidualLayerNormType(const InferContext& c) {
  const double rate = c.attrs.GetFloat("dropout_rate");
  if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a dropout rate in [0, 1), got ", rate));
  if (c.num_inputs() != 5 + Drops(c.attrs) || c.shape(0).rank() != 2 || c.shape(0).dim(1) < 1 ||
      !IsStorageType(c.dtype(0)) || c.type(1) != c.type(0)) {
    return c.Error("needs x and sublayer [T, C] of one type (float32, bfloat16 or half), gamma, beta and offsets");
  }
  const TensorType parameter{DType::kFloat32, {c.shape(0).dim(1)}};
  if (c.type(2) != parameter || c.type(3) != parameter) return c.Error("needs float32 gamma [C] and beta [C]");
  if (c.dtype(4) != DType::kInt32 || c.shape(4).rank() != 1 || c.shape(4).dim(0) < 1) {
    return c.Error("needs int32 offsets [B + 1]");
  }
  if (c.num_inputs() == 6 && c.type(5) != TensorType{DType::kInt64, {3}}) {
    return c.Error("needs a random state int64[3]");
  }
  const TensorType row_statistic{DType::kFloat32, {c.shape(0).dim(0)}};
  return std::vector<TensorType>{c.type(0), c.type(0), row_statistic, row_statistic};
}

// Inputs dy, the sum, gamma, mean, 1 / standard deviation, offsets[, random state][, gradient of the sum]; outputs the
// gradients of x, sublayer, gamma and beta.
absl::StatusOr<std::vector<TensorType>> ResidualLayerNormGradType(const InferContext& c) {
  if (c.num_inputs() != 6 + Drops(c.attrs) + c.attrs.GetBool("adds") || c.type(1) != c.type(0)) {
    return c.Error("needs the forward pass's values and the gradients of its results");
  }
  return std::vector<TensorType>{c.type(0), c.type(0), c.type(2), c.type(2)};
}

std::vector<Value> ResidualLayerNormGradient(const Node& node, absl::Span<const Value> dy) {
  std::vector<Value> gradients(node.num_inputs());
  if (!dy[0] && !dy[1]) return gradients;
  Value d_normalized = dy[1];
  if (!d_normalized) {
    const Value zero = node.graph().Constant(Tensor(node.output(1).dtype(), {}));
    d_normalized = BroadcastTo(zero, node.output(1).shape());
  }
  std::vector<Value> inputs = {d_normalized,   node.output(0), node.input(2),
                               node.output(2), node.output(3), node.input(4)};
  if (node.num_inputs() == 6) inputs.push_back(node.input(5));
  if (dy[0]) inputs.push_back(dy[0]);
  Attrs attrs = node.attrs();
  attrs.Set("adds", static_cast<bool>(dy[0]));
  Node* const gradient = ApplyNode(op::ResidualLayerNormGrad, inputs, attrs);
  for (int i = 0; i < 4; ++i) gradients[i] = OutputOf(gradient, i);
  return gradients;
}

const bool layer_norm = RegisterOp({
    .name = op::LayerNorm,
    .infer = LayerNormType,
    .gradient = LayerNormGradient,
    .tolerance = {1e-5, 2e-2},
});
const bool layer_norm_grad = RegisterOp({
    .name = op::LayerNormGrad,
    .infer = LayerNormGradType,
    .tolerance = {1e-5, 2e-2},
});
const bool residual_layer_norm = RegisterOp({
    .name = op::ResidualLayerNorm,
    .infer = ResidualLayerNormType,
    .gradient = ResidualLayerNormGradient,
    .tolerance = {1e-5, 4e-2},
});
const bool residual_layer_norm_grad =
    RegisterOp({.name = op::ResidualLayerNormGrad, .infer = ResidualLayerNormGradType});

}  // namespace

Value LayerNorm(Value x, Value gamma, Value beta, float epsilon) {
  return Apply(op::LayerNorm, {x, gamma, beta}, Attrs{{"epsilon", static_cast<double>(epsilon)}});
}

ResidualLayerNormOutputs ResidualLayerNorm(const ResidualLayerNormInputs& in, const ResidualLayerNormParams& params) {
  std::vector<Value> inputs = {in.x, in.sublayer, in.gamma, in.beta, in.offsets};
  if (params.dropout_rate > 0) inputs.push_back(in.random_state);
  Node* const node = ApplyNode(op::ResidualLayerNorm, inputs,
                               Attrs{{"epsilon", static_cast<double>(params.epsilon)},
                                     {"dropout_rate", params.dropout_rate},
                                     {"stream", DropoutStream(params.name)}});
  return {OutputOf(node, 0), OutputOf(node, 1)};
}

}  // namespace official::compute
