// Softmax over the last dimension, and the losses that are made of it.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName Softmax("Softmax");
inline constexpr OpName SoftmaxGrad("SoftmaxGrad");
inline constexpr OpName LogSoftmax("LogSoftmax");
inline constexpr OpName LogSoftmaxGrad("LogSoftmaxGrad");
inline constexpr OpName LogSumExp("LogSumExp");
inline constexpr OpName SparseSoftmaxCrossEntropy("SparseSoftmaxCrossEntropy");
inline constexpr OpName SparseSoftmaxCrossEntropyGrad("SparseSoftmaxCrossEntropyGrad");
// What a training step makes of the logits of a small batch, in one node: only a program makes it, for devices on which
// a launch costs more than the work. Attributes: those of SparseSoftmaxCrossEntropy without padding; "checked": true if
// a mean loss that is not finite fails the run with OutOfRange.
inline constexpr OpName MeanCrossEntropy("MeanCrossEntropy");
// x [V, ...] float32 in the attribute "dtype", bfloat16 or half, and zeros behind it: [rows, ...], "rows" being V or
// more. Only a program makes it, for devices that load 16 bytes at once and so want rows of logits to start at
// multiples of them (aligned_logits.cc).
inline constexpr OpName CastAndPadRows("CastAndPadRows");

}  // namespace official::compute::op

// The inputs and the output of SoftmaxGrad and LogSoftmaxGrad. y is the result of the forward pass.
namespace official::compute::softmax_grad {
enum Input : int { kY, kDy };
enum Output : int { kDx };
}  // namespace official::compute::softmax_grad

// The inputs and outputs of SparseSoftmaxCrossEntropy. The attribute "classes", in a program only, is the number of
// classes where rows of logits are longer: what is behind is not read, and its gradient is 0.
namespace official::compute::sparse_softmax_cross_entropy {
enum Input : int { kLogits, kLabels };
enum Output : int {
  kLosses,
  kLogSums,  // float32 [...]: the logarithm of the sum of each row's exponentials
};
}  // namespace official::compute::sparse_softmax_cross_entropy

// The inputs and the output of SparseSoftmaxCrossEntropyGrad. The first two inputs are those of the forward pass.
namespace official::compute::sparse_softmax_cross_entropy_grad {
enum Input : int { kLogits, kLabels, kLogSums, kLossGradients };
enum Output : int { kLogitsGradient };
}  // namespace official::compute::sparse_softmax_cross_entropy_grad

// The inputs and outputs of MeanCrossEntropy. The gradient of the mean loss is that of each row's loss, in an input.
namespace official::compute::mean_cross_entropy {
enum Input : int { kLogits, kLabels, kLossGradients };
enum Output : int {
  kMeanLoss,        // float32 []
  kCorrect,         // float32 []: the number of rows whose largest logit, the first of equal ones, is the label's
  kLogitsGradient,  // as the logits
  kBiasGradient,    // [C], of the type of the logits: the sum of the gradient's rows, as BiasAddGrad computes it
};
inline constexpr int64_t kMaxElements = 32768;  // of the logits, which one block of threads treats
}  // namespace official::compute::mean_cross_entropy

namespace official::compute {

// Softmax of x [..., C] float; the result has the same type. Each row sums to 1.
Value Softmax(Value x);
// log(Softmax(x)), without underflow.
Value LogSoftmax(Value x);
// The logarithm of the sum of each row's exponentials, which LogSoftmax subtracts: x [..., C] float gives float32
// [...]. No gradient.
Value LogSumExp(Value x);

// The cross entropy of each row with one true class, in nats: logits [..., C] float, labels [...] int32 or int64 in [0,
// C); the result is float32 [...]. With label_smoothing e the target is 1 - e + e / C at the label and e / C elsewhere
// (tf.losses.softmax_cross_entropy).
// The softmax is never stored: the node also outputs the logarithm of each row's sum, and the backward pass overwrites
// the logits with their gradient if it may. Running fails with InvalidArgument if a label is outside [0, C).
Value SparseSoftmaxCrossEntropy(Value logits, Value labels, double label_smoothing = 0);

// The loss of the official transformer for each token: the target is 1 - s at the label and s / (C - 1) elsewhere,
// where s is label_smoothing, and the target's entropy is subtracted, so that a perfect prediction costs 0. Label 0 is
// padding: its logits are not read, its loss and gradient are 0. C is at least 2.
// Source: padded_cross_entropy_loss in tensorflow/models official/transformer/utils/metrics.py.
Value PaddedCrossEntropy(Value logits, Value labels, double label_smoothing);

}  // namespace official::compute
