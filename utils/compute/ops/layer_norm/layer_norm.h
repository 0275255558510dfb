// Layer normalization.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName LayerNorm("LayerNorm");
inline constexpr OpName LayerNormGrad("LayerNormGrad");
inline constexpr OpName ResidualLayerNorm("ResidualLayerNorm");
inline constexpr OpName ResidualLayerNormGrad("ResidualLayerNormGrad");

}  // namespace official::compute::op

// The inputs and outputs of LayerNorm.
namespace official::compute::layer_norm {
enum Input : int { kX, kGamma, kBeta };
enum Output : int {
  kY,
  kMean,              // float32 [...]: of each row
  kInverseDeviation,  // float32 [...]: 1 / sqrt(variance + epsilon) of each row
};
}  // namespace official::compute::layer_norm

// The inputs and outputs of LayerNormGrad.
namespace official::compute::layer_norm_grad {
enum Input : int { kX, kGamma, kMean, kInverseDeviation, kDy };
enum Output : int { kDx, kGammaGradient, kBetaGradient };
}  // namespace official::compute::layer_norm_grad

// The inputs and outputs of ResidualLayerNorm. The statistics are those of the sum's rows.
namespace official::compute::residual_layer_norm {
enum Input : int { kX, kSublayer, kGamma, kBeta, kOffsets, kRandomState };
enum Output : int { kSum, kNormalized, kMean, kInverseDeviation };
}  // namespace official::compute::residual_layer_norm

// The inputs and outputs of ResidualLayerNormGrad. If its attribute "adds" is true, the gradient of the sum is one more
// input, the last one.
namespace official::compute::residual_layer_norm_grad {
enum Input : int { kNormalizedGradient, kSum, kGamma, kMean, kInverseDeviation, kOffsets, kRandomState };
enum Output : int { kDx, kSublayerGradient, kGammaGradient, kBetaGradient };
}  // namespace official::compute::residual_layer_norm_grad

namespace official::compute {

// Normalizes each row of x, then scales and shifts it:
//   y = (x - mean) * rsqrt(mean((x - mean)^2) + epsilon) * gamma + beta
// x [..., C] float, y of the same type; gamma and beta [C], float32 whatever the type of x, as are mean and variance.
// The gradient of gamma and beta has the same bits for any number of threads.
// Source: LayerNormalization of the official transformer, whose epsilon is 1e-6.
Value LayerNorm(Value x, Value gamma, Value beta, float epsilon = 1e-6f);

struct ResidualLayerNormInputs {
  Value x, sublayer;  // [T, C] of one type: the tokens of packed sequences
  Value gamma, beta;  // as for LayerNorm
  // int32 [B + 1], ascending from 0: sequence b has rows [offsets[b], offsets[b + 1]), which are at most T. Rows from
  // offsets[B] on are padding: never read, and zero in all results and gradients.
  Value offsets;
  // RandomState of dropout.h, with sequences as the examples. Needed for a dropout rate above 0 only.
  Value random_state = {};
};

struct ResidualLayerNormParams {
  float epsilon = 1e-6f;
  double dropout_rate = 0;
  absl::string_view name = "";  // the name of the dropout's random numbers
};

struct ResidualLayerNormOutputs {
  Value sum;         // x + Dropout(sublayer), PackedDropout of dropout.h
  Value normalized;  // LayerNorm(sum)
};

// Computes the part between two sublayers of the official transformer, y = x + dropout(sublayer(layer_norm(x))), in one
// pass, and its gradients in another: the end of one sublayer and the start of the next.
ResidualLayerNormOutputs ResidualLayerNorm(const ResidualLayerNormInputs& inputs,
                                           const ResidualLayerNormParams& params);

}  // namespace official::compute
