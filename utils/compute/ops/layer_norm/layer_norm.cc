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

absl::StatusOr<std::vector<TensorType>> LayerNormType(const InferContext& c) {
  namespace in = layer_norm;
  if (c.num_inputs() != 3 || !IsFloating(c.dtype(in::kX)) || c.shape(in::kX).rank() < 1 ||
      c.shape(in::kX).dim(-1) < 1) {
    return c.Error("needs a floating input [..., C] with C of at least 1, gamma and beta");
  }
  const TensorType parameter{DType::kFloat32, {c.shape(in::kX).dim(-1)}};
  if (c.type(in::kGamma) != parameter || c.type(in::kBeta) != parameter) {
    return c.Error("needs float32 gamma [C] and beta [C]");
  }
  const TensorType row_statistic{DType::kFloat32, RowShape(c.shape(in::kX))};
  return std::vector<TensorType>{c.type(in::kX), row_statistic, row_statistic};
}

absl::StatusOr<std::vector<TensorType>> LayerNormGradType(const InferContext& c) {
  namespace in = layer_norm_grad;
  if (c.num_inputs() != 5 || c.type(in::kDy) != c.type(in::kX)) {
    return c.Error("needs the forward pass's values and dy");
  }
  return std::vector<TensorType>{c.type(in::kX), c.type(in::kGamma), c.type(in::kGamma)};
}

std::vector<Value> LayerNormGradient(const Node& node, absl::Span<const Value> dy) {
  namespace forward = layer_norm;
  namespace backward = layer_norm_grad;
  if (!dy[forward::kY]) return {Value(), Value(), Value()};
  const Node* gradient =
      ApplyNode(op::LayerNormGrad, {node.input(forward::kX), node.input(forward::kGamma), node.output(forward::kMean),
                                    node.output(forward::kInverseDeviation), dy[forward::kY]});
  if (gradient == nullptr) return {Value(), Value(), Value()};
  return {gradient->output(backward::kDx), gradient->output(backward::kGammaGradient),
          gradient->output(backward::kBetaGradient)};
}

bool Drops(const Attrs& attrs) { return attrs.GetFloat("dropout_rate") > 0; }

absl::StatusOr<std::vector<TensorType>> ResidualLayerNormType(const InferContext& c) {
  namespace in = residual_layer_norm;
  const double rate = c.attrs.GetFloat("dropout_rate");
  if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a dropout rate in [0, 1), got ", rate));
  if (c.num_inputs() != in::kRandomState + Drops(c.attrs) || c.shape(in::kX).rank() != 2 ||
      c.shape(in::kX).dim(1) < 1 || !IsStorageType(c.dtype(in::kX)) || c.type(in::kSublayer) != c.type(in::kX)) {
    return c.Error("needs x and sublayer [T, C] of one type (float32, bfloat16 or half), gamma, beta and offsets");
  }
  const TensorType parameter{DType::kFloat32, {c.shape(in::kX).dim(1)}};
  if (c.type(in::kGamma) != parameter || c.type(in::kBeta) != parameter) {
    return c.Error("needs float32 gamma [C] and beta [C]");
  }
  if (c.dtype(in::kOffsets) != DType::kInt32 || c.shape(in::kOffsets).rank() != 1 || c.shape(in::kOffsets).dim(0) < 1) {
    return c.Error("needs int32 offsets [B + 1]");
  }
  if (c.num_inputs() > in::kRandomState && c.type(in::kRandomState) != TensorType{DType::kInt64, {3}}) {
    return c.Error("needs a random state int64[3]");
  }
  const TensorType row_statistic{DType::kFloat32, {c.shape(in::kX).dim(0)}};
  return std::vector<TensorType>{c.type(in::kX), c.type(in::kX), row_statistic, row_statistic};
}

absl::StatusOr<std::vector<TensorType>> ResidualLayerNormGradType(const InferContext& c) {
  namespace in = residual_layer_norm_grad;
  if (c.num_inputs() != in::kRandomState + Drops(c.attrs) + c.attrs.GetBool("adds") ||
      c.type(in::kSum) != c.type(in::kNormalizedGradient)) {
    return c.Error("needs the forward pass's values and the gradients of its results");
  }
  return std::vector<TensorType>{c.type(in::kNormalizedGradient), c.type(in::kNormalizedGradient), c.type(in::kGamma),
                                 c.type(in::kGamma)};
}

std::vector<Value> ResidualLayerNormGradient(const Node& node, absl::Span<const Value> dy) {
  namespace forward = residual_layer_norm;
  namespace backward = residual_layer_norm_grad;
  std::vector<Value> gradients(node.num_inputs());
  const Value d_sum = dy[forward::kSum];
  Value d_normalized = dy[forward::kNormalized];
  if (!d_sum && !d_normalized) return gradients;
  if (!d_normalized) {
    const Value normalized = node.output(forward::kNormalized);
    d_normalized = BroadcastTo(node.graph().Constant(Tensor(normalized.dtype(), {})), normalized.shape());
  }
  std::vector<Value> inputs = {d_normalized,
                               node.output(forward::kSum),
                               node.input(forward::kGamma),
                               node.output(forward::kMean),
                               node.output(forward::kInverseDeviation),
                               node.input(forward::kOffsets)};
  if (node.num_inputs() > forward::kRandomState) inputs.push_back(node.input(forward::kRandomState));
  if (d_sum) inputs.push_back(d_sum);
  Attrs attrs = node.attrs();
  attrs.Set("adds", static_cast<bool>(d_sum));
  Node* const gradient = ApplyNode(op::ResidualLayerNormGrad, inputs, attrs);
  gradients[forward::kX] = OutputOf(gradient, backward::kDx);
  gradients[forward::kSublayer] = OutputOf(gradient, backward::kSublayerGradient);
  gradients[forward::kGamma] = OutputOf(gradient, backward::kGammaGradient);
  gradients[forward::kBeta] = OutputOf(gradient, backward::kBetaGradient);
  return gradients;
}

const bool registered[] = {
    RegisterOp({
        .name = op::LayerNorm,
        .infer = LayerNormType,
        .gradient = LayerNormGradient,
        .tolerance = {1e-5, 2e-2},
    }),
    RegisterOp({
        .name = op::LayerNormGrad,
        .infer = LayerNormGradType,
        .tolerance = {1e-5, 2e-2},
    }),
    RegisterOp({
        .name = op::ResidualLayerNorm,
        .infer = ResidualLayerNormType,
        .gradient = ResidualLayerNormGradient,
        .tolerance = {1e-5, 4e-2},
    }),
    RegisterOp({.name = op::ResidualLayerNormGrad, .infer = ResidualLayerNormGradType}),
};

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
  return {.sum = OutputOf(node, residual_layer_norm::kSum),
          .normalized = OutputOf(node, residual_layer_norm::kNormalized)};
}

}  // namespace official::compute
