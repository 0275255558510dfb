// Batch normalization over all dimensions but the last (channels), as TensorFlow's FusedBatchNorm defines it.
#pragma once

#include <optional>
#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName FusedBatchNorm("FusedBatchNorm");
inline constexpr OpName FusedBatchNormAgain("FusedBatchNormAgain");
inline constexpr OpName FusedBatchNormGrad("FusedBatchNormGrad");
inline constexpr OpName FusedBatchNormInference("FusedBatchNormInference");

}  // namespace official::compute::op

// The inputs and outputs of FusedBatchNorm.
namespace official::compute::fused_batch_norm {
enum Input : int { kX, kGamma, kBeta, kResidual };  // the residual, of the type of x, may be absent
enum Output : int { kY, kMean, kVariance, kInverseDeviation };
}  // namespace official::compute::fused_batch_norm

// The inputs of FusedBatchNormAgain.
namespace official::compute::fused_batch_norm_again {
enum Input : int { kX, kGamma, kBeta, kMean, kInverseDeviation };
}  // namespace official::compute::fused_batch_norm_again

// The inputs and outputs of FusedBatchNormGrad.
namespace official::compute::fused_batch_norm_grad {
// Beta and the addend, which is of the type of x, may be absent. Without beta the addend is in its place.
enum Input : int { kDy, kX, kGamma, kMean, kInverseDeviation, kBeta, kAddend, kAddendWithoutBeta = kBeta };
enum Output : int { kDx, kGammaGradient, kBetaGradient };

struct OptionalInputs {
  bool beta = false;
  std::optional<int> addend = std::nullopt;  // its place
};

// The types tell them apart: x has a rank of 2 or more, beta of 1.
inline OptionalInputs OptionalInputsOf(const Node& node) {
  OptionalInputs optional;
  int next = kBeta;
  if (next < node.num_inputs() && node.input(next).type() != node.input(kX).type()) {
    optional.beta = true;
    ++next;
  }
  if (next < node.num_inputs()) optional.addend = next;
  return optional;
}

// The three of `node`, which may be null after an error.
std::vector<Value> OutputsOf(Node* node);
}  // namespace official::compute::fused_batch_norm_grad

// The inputs of FusedBatchNormInference.
namespace official::compute::fused_batch_norm_inference {
enum Input : int { kX, kGamma, kBeta, kMean, kVariance, kResidual };  // the residual may be absent
}  // namespace official::compute::fused_batch_norm_inference

namespace official::compute {

struct BatchNormResult {
  Value y;         // of the same type as x
  Value mean;      // float32 [C], the batch's mean
  Value variance;  // float32 [C], the batch's variance with Bessel's correction n / (n - 1), as moving averages use it
};

// x [..., C] float32, bfloat16 or half, gamma and beta float32 [C]:
//   y = gamma * (x - mean) / sqrt(biased variance + epsilon) + beta
// with the mean and variance of each channel over the batch, computed in float32. Gradients flow to x, gamma and beta.
// A program merges a following Add of the same shape and ReLU into the normalization.
BatchNormResult FusedBatchNorm(Value x, Value gamma, Value beta, double epsilon);

// The same with the statistics of the examples of all devices whose programs are in the group (collective.h), each of
// which runs a graph that adds the same sums in the same order. `weight`, a float32 scalar, is this device's share of
// the examples, 0 if it has none. It is a composition of other ops, slower than FusedBatchNorm.
BatchNormResult SyncBatchNorm(Value x, Value gamma, Value beta, Value weight, double epsilon);

// FusedBatchNorm with a given mean and variance, float32 [C]: for evaluation. No gradient flows through it.
Value FusedBatchNormInference(Value x, Value gamma, Value beta, Value mean, Value variance, double epsilon);

}  // namespace official::compute
