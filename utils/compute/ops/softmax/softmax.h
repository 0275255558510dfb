// Softmax over the last dimension, and the loss that is made of it.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute {

// Each row sums to 1. x [..., C] float; the result has the same type.
Value Softmax(Value x);
// log(Softmax(x)), without underflow.
Value LogSoftmax(Value x);

// Cross entropy of each row with one true class, in nats: logits [..., C] float, labels [...] int32 or int64 in [0, C);
// the result is float32 [...]. With label_smoothing e the target is 1 - e + e / C at the label and e / C elsewhere
// (tf.losses.softmax_cross_entropy); the official transformer's 1 - s and s / (C - 1) are e = s * C / (C - 1).
// The softmax is never stored: the kernel writes the gradient of the logits, over the logits where it may.
// Running fails with InvalidArgument if a label is outside [0, C).
Value SparseSoftmaxCrossEntropy(Value logits, Value labels, float label_smoothing = 0);

}  // namespace official::compute
