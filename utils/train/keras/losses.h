// Losses, as tf.keras.losses has them, for a Keras model and for training loops of one's own.
#pragma once

#include <functional>

#include "utils/compute/graph/graph.h"

namespace official::keras {

// Reduction: what becomes of the losses of a batch: their mean, a scalar, or nothing, so that each example has one. A
// loop of one's own on several replicas takes kNone and divides by the size of the global batch:
// distribute::ComputeAverageLoss.
enum class Reduction { kSumOverBatchSize, kNone };

// Returns the loss of a batch, float32: a scalar for a Keras model.
using LossFn = std::function<compute::Value(compute::Value labels, compute::Value outputs)>;

// Outputs and labels of the same shape [batch, ...], float32. Of an example it is the mean over the last dimension.
LossFn MeanSquaredError(Reduction reduction = Reduction::kSumOverBatchSize);
// Outputs [batch, classes], float32, before softmax (from_logits=True); labels [batch], int32.
LossFn SparseCategoricalCrossentropy(Reduction reduction = Reduction::kSumOverBatchSize);
// Outputs [batch, ...], float32, before the sigmoid (from_logits=True); labels of the same shape, float32 in [0, 1]. Of
// an example it is the mean over the last dimension.
LossFn BinaryCrossentropy(Reduction reduction = Reduction::kSumOverBatchSize);

}  // namespace official::keras
