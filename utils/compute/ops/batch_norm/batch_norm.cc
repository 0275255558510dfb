#include "utils/compute/ops/batch_norm/batch_norm.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

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

// The fused form adds an input, the residual, which is added before the activation.
absl::Status CheckResidual(const InferContext& c, int inputs) {
  if (c.num_inputs() == inputs) return absl::OkStatus();
  if (c.num_inputs() != inputs + 1) return c.Error(absl::StrCat("takes ", inputs, " inputs and perhaps a residual"));
  if (c.type(inputs) != c.type(0)) return c.Error("the residual must have the type of x");
  return absl::OkStatus();
}

// FusedBatchNorm(x, gamma, beta[, residual]; epsilon, activation) -> y, mean, variance, inverse standard deviation
Types InferTraining(const InferContext& c) {
  RETURN_IF_ERROR(CheckResidual(c, 3));
  RETURN_IF_ERROR(CheckTypes(c, 1, 1, 3));
  return std::vector<TensorType>{c.type(0), PerChannel(c), PerChannel(c), PerChannel(c)};
}

// FusedBatchNormInference(x, gamma, beta, mean, variance[, residual]; epsilon, activation) -> y
Types InferInference(const InferContext& c) {
  RETURN_IF_ERROR(CheckResidual(c, 5));
  RETURN_IF_ERROR(CheckTypes(c, 1, 1, 5));
  return SameTypeAsInput(c);
}

// FusedBatchNormAgain(x, gamma, beta, mean, inverse standard deviation; epsilon, activation) -> y, to the bit what the
// FusedBatchNorm gave that the statistics are from.
Types InferAgain(const InferContext& c) {
  if (c.num_inputs() != 5) return c.Error("takes 5 inputs");
  RETURN_IF_ERROR(CheckTypes(c, 1, 1, 5));
  return SameTypeAsInput(c);
}

// FusedBatchNormGrad(dy, x, gamma, mean, inverse standard deviation[, beta][, addend]) -> gradients of x, gamma, beta.
// With beta, dy is the gradient behind a ReLU, whose sign is that of the y that x, gamma and beta give. The addend, of
// the type of x, is added to the gradient of x: what others that read x have given.
Types InferGradient(const InferContext& c) {
  const int last = c.num_inputs() - 1;
  if (last < 4 || last > 6) return c.Error("takes 5 inputs and perhaps beta and an addend");
  const int addends = c.type(last) == c.type(0) ? 1 : 0;
  if (last == 6 && addends == 0) return c.Error("the addend must have the type of x");
  RETURN_IF_ERROR(CheckTypes(c, 2, 2, c.num_inputs() - addends));
  return std::vector<TensorType>{c.type(0), PerChannel(c), PerChannel(c)};
}

std::vector<Value> Gradient(const Node& node, absl::Span<const Value> dy) {
  if (!dy[0]) return std::vector<Value>(node.num_inputs());
  Node* const gradient =
      ApplyNode(op::FusedBatchNormGrad, {dy[0], node.input(0), node.input(1), node.output(1), node.output(3)});
  return {OutputOf(gradient, 0), OutputOf(gradient, 1), OutputOf(gradient, 2)};
}

Attrs NormAttrs(double epsilon) { return Attrs{{"epsilon", epsilon}, {"activation", std::string()}}; }

const bool registered[] = {
    RegisterOp({.name = op::FusedBatchNorm, .infer = InferTraining, .gradient = Gradient}),
    RegisterOp({.name = op::FusedBatchNormAgain, .infer = InferAgain}),
    RegisterOp({.name = op::FusedBatchNormGrad, .infer = InferGradient}),
    RegisterOp({.name = op::FusedBatchNormInference, .infer = InferInference}),
};

}  // namespace

BatchNormResult FusedBatchNorm(Value x, Value gamma, Value beta, double epsilon) {
  Node* const node = ApplyNode(op::FusedBatchNorm, {x, gamma, beta}, NormAttrs(epsilon));
  return {OutputOf(node, 0), OutputOf(node, 1), OutputOf(node, 2)};
}

Value FusedBatchNormInference(Value x, Value gamma, Value beta, Value mean, Value variance, double epsilon) {
  return Apply(op::FusedBatchNormInference, {x, gamma, beta, mean, variance}, NormAttrs(epsilon));
}

}  // namespace official::compute
