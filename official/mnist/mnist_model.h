// The official MNIST model: two convolutions with pooling, two dense layers. Source: tensorflow/models
// official/mnist/mnist.py at d64bcfe3.
#pragma once

#include "utils/train/model.h"

namespace official::mnist {

inline constexpr int kImageSize = 28;
inline constexpr int kNumClasses = 10;

struct ModelConfig {
  double learning_rate = 1e-4;  // Adam's
  double dropout_rate = 0.4;
  // The order in which dense/kernel's rows name the pooled features: channels_last is (h, w, c), channels_first
  // (c, h, w), as in TensorFlow, whose checkpoints differ in the same way. Images are computed in one order either way.
  bool channels_first = false;
};

// Features: images float32 [784] in [0, 1]; labels int32 []. Predictions: classes int64 [batch], probabilities
// float32 [batch, 10].
train::Model MnistModel(const ModelConfig& config);

}  // namespace official::mnist
