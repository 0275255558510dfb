// For tests: a model with a weight for each feature, data for it, and an Estimator of it.
#pragma once

#include <memory>
#include <optional>

#include "utils/train/estimator.h"

namespace official::train {

// Fits x [batch, n] * w to the labels [batch] by gradient descent with the learning rate 0.1.
Model Line();

// Returns endless epochs of 20 batches of 4 examples with 2 features; the last feature of each batch, or only of batch
// number `of_batch`, is `last`.
InputFn Input(float last, std::optional<int> of_batch = {});

// Returns the default configuration with a model_dir of its own, which does not exist.
EstimatorConfig Config();

// Returns an Estimator of Line() on the CPU.
std::unique_ptr<Estimator> MakeEstimator(EstimatorConfig config, int num_replicas = 1);

}  // namespace official::train
