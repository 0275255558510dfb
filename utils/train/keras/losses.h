// Losses, as tf.keras.losses has them, for a Keras model and for training loops of one's own.
#pragma once

#include <functional>

#include "utils/compute/graph/graph.h"

namespace official::keras {

// Reduction: what becomes of the losses of a batch: their mean, a scalar, or nothing, so that each example has one. A
// loop of one's own takes kNone and divides by the size of the global batch: distribute::ComputeAverageLoss. In the
// functions of a distribute::StrategyScope the graph fails with InvalidArgument for kSumOverBatchSize.
enum class Reduction { kSumOverBatchSize, kNone };

// Returns the loss of a batch, float32: a scalar for a Keras model.
using LossFn = std::function<compute::Value(compute::Value labels, compute::Value outputs)>;

struct Aligned {
  compute::Value labels, outputs;
};
// Returns labels and outputs of one shape. If one has one dimension more, the last and of size 1, the other gets that
// dimension where its shape is [batch], else the first loses it. The graph fails with InvalidArgument if the shapes
// differ otherwise, and both are invalid. Source: squeeze_or_expand_to_same_rank in keras/src/losses/loss.py of Keras
// 3, which broadcasts what differs.
Aligned AlignRanks(compute::Value labels, compute::Value outputs);

// Outputs and labels of the same shape [batch, ...], up to AlignRanks, float32. Of an example it is the mean over the
// last dimension.
LossFn MeanSquaredError(Reduction reduction = Reduction::kSumOverBatchSize);
// Outputs [batch, classes], float32, before softmax (from_logits=True); labels [batch], int32.
LossFn SparseCategoricalCrossentropy(Reduction reduction = Reduction::kSumOverBatchSize);
// Outputs [batch, ...], float32, before the sigmoid (from_logits=True); labels of the same shape, up to AlignRanks,
// float32 in [0, 1]. Of an example it is the mean over the last dimension.
LossFn BinaryCrossentropy(Reduction reduction = Reduction::kSumOverBatchSize);

}  // namespace official::keras
