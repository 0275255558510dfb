#include "utils/compute/ops/batch_norm/batch_norm.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

namespace training = fused_batch_norm;
namespace inference = fused_batch_norm_inference;
namespace again = fused_batch_norm_again;
namespace backward = fused_batch_norm_grad;

using Types = absl::StatusOr<std::vector<TensorType>>;

TensorType PerChannel(const InferContext& c) { return {DType::kFloat32, {c.shape(0).dim(-1)}}; }

// Inputs 0 .. images - 1 have one type [..., C], those from `begin` to `end` are float32 [C].
absl::Status CheckTypes(const InferContext& c, int images, int begin, int end) {
  if (c.shape(0).rank() < 2 || !IsFloating(c.dtype(0))) return c.Error("x must be floats [..., C] of rank 2 or more");
  for (int i = 1; i < images; ++i) {
    if (c.type(i) != c.type(0)) return c.Error(absl::StrCat("input ", i, " must have the type of input 0"));
  }
  for (int i = begin; i < end; ++i) {
    if (c.type(i) != PerChannel(c)) {
      return c.Error(absl::StrCat("input ", i, " must be ", PerChannel(c).ToString(), ", a number per channel"));
    }
  }
  return absl::OkStatus();
}

// The fused form adds an input, the residual, which is added before the activation; it is the last one.
absl::Status CheckResidual(const InferContext& c, int residual) {
  if (c.num_inputs() == residual) return absl::OkStatus();
  if (c.num_inputs() != residual + 1) {
    return c.Error(absl::StrCat("takes ", residual, " inputs and perhaps a residual"));
  }
  if (c.type(residual) != c.type(0)) return c.Error("the residual must have the type of x");
  return absl::OkStatus();
}

// FusedBatchNorm(x, gamma, beta[, residual]; epsilon, activation) -> y, mean, variance, inverse standard deviation
Types InferTraining(const InferContext& c) {
  RETURN_IF_ERROR(CheckResidual(c, training::kResidual));
  RETURN_IF_ERROR(CheckTypes(c, 1, training::kGamma, training::kResidual));
  return std::vector<TensorType>{c.type(training::kX), PerChannel(c), PerChannel(c), PerChannel(c)};
}

// FusedBatchNormInference(x, gamma, beta, mean, variance[, residual]; epsilon, activation) -> y
Types InferInference(const InferContext& c) {
  RETURN_IF_ERROR(CheckResidual(c, inference::kResidual));
  RETURN_IF_ERROR(CheckTypes(c, 1, inference::kGamma, inference::kResidual));
  return SameTypeAsInput(c);
}

// FusedBatchNormAgain(x, gamma, beta, mean, inverse standard deviation; epsilon, activation) -> y, to the bit what the
// FusedBatchNorm gave that the statistics are from.
Types InferAgain(const InferContext& c) {
  if (c.num_inputs() != 5) return c.Error("takes 5 inputs");
  RETURN_IF_ERROR(CheckTypes(c, 1, again::kGamma, c.num_inputs()));
  return SameTypeAsInput(c);
}

// FusedBatchNormGrad(dy, x, gamma, mean, inverse standard deviation[, beta][, addend]) -> gradients of x, gamma, beta.
// With beta, dy is the gradient behind a ReLU, whose sign is that of the y that x, gamma and beta give. The addend, of
// the type of x, is added to the gradient of x: what others that read x have given.
Types InferGradient(const InferContext& c) {
  const int last = c.num_inputs() - 1;
  if (last < backward::kInverseDeviation || last > backward::kAddend) {
    return c.Error("takes 5 inputs and perhaps beta and an addend");
  }
  const int addends = c.type(last) == c.type(backward::kDy) ? 1 : 0;
  if (last == backward::kAddend && addends == 0) return c.Error("the addend must have the type of x");
  RETURN_IF_ERROR(CheckTypes(c, 2, backward::kGamma, c.num_inputs() - addends));
  return std::vector<TensorType>{c.type(backward::kDy), PerChannel(c), PerChannel(c)};
}

std::vector<Value> Gradient(const Node& node, absl::Span<const Value> dy) {
  if (!dy[training::kY]) return std::vector<Value>(node.num_inputs());
  return backward::OutputsOf(
      ApplyNode(op::FusedBatchNormGrad, {dy[training::kY], node.input(training::kX), node.input(training::kGamma),
                                         node.output(training::kMean), node.output(training::kInverseDeviation)}));
}

Attrs NormAttrs(double epsilon) { return Attrs{{"epsilon", epsilon}, {"activation", std::string()}}; }

const bool registered[] = {
    RegisterOp({.name = op::FusedBatchNorm, .infer = InferTraining, .gradient = Gradient}),
    RegisterOp({.name = op::FusedBatchNormAgain, .infer = InferAgain}),
    RegisterOp({.name = op::FusedBatchNormGrad, .infer = InferGradient}),
    RegisterOp({.name = op::FusedBatchNormInference, .infer = InferInference}),
};

}  // namespace

std::vector<Value> backward::OutputsOf(Node* node) {
  return {OutputOf(node, kDx), OutputOf(node, kGammaGradient), OutputOf(node, kBetaGradient)};
}

BatchNormResult FusedBatchNorm(Value x, Value gamma, Value beta, double epsilon) {
  Node* const node = ApplyNode(op::FusedBatchNorm, {x, gamma, beta}, NormAttrs(epsilon));
  return {OutputOf(node, training::kY), OutputOf(node, training::kMean), OutputOf(node, training::kVariance)};
}

Value FusedBatchNormInference(Value x, Value gamma, Value beta, Value mean, Value variance, double epsilon) {
  return Apply(op::FusedBatchNormInference, {x, gamma, beta, mean, variance}, NormAttrs(epsilon));
}

}  // namespace official::compute
