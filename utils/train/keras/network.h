// Network and metrics: the parts of a Keras model beside its loss, and the graph of a batch that they make.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/layers/layers.h"
#include "utils/train/keras/losses.h"
#include "utils/train/model.h"

namespace official::keras {

// Builds the outputs [batch, ...] of the network for the features of a batch. It is called in each mode: `in` says in
// which, and has the features, and in training the random state for Dropout.
using NetworkFn = std::function<compute::Value(compute::Layers& layers, const train::ModelInputs& in)>;

// A mean over examples. `values` returns the value of each of a batch, float32.
struct Metric {
  std::string name;
  std::function<compute::Value(compute::Value labels, compute::Value outputs)> values;
};
// Outputs and labels as for SparseCategoricalCrossentropy, or labels [batch, 1]: the part of the examples whose class
// has the largest output.
Metric SparseCategoricalAccuracy(std::string name = "accuracy");

// Returns InvalidArgument if two metrics of a model have one name, or one has a name that the logs have for something
// else: loss, learning_rate, global_step.
absl::Status CheckMetrics(absl::string_view model, const std::vector<Metric>& metrics);

// The name of the outputs among the predictions of BuildSpec.
inline constexpr char kOutputs[] = "outputs";

// Builds a model in one of its modes. What is wrong is in the status of the graph: InvalidArgument if there is no loss,
// or are no labels, to train or evaluate with.
train::ModelSpec BuildSpec(const NetworkFn& network, const LossFn& loss, const std::vector<Metric>& metrics,
                           const train::ModelInputs& in);

}  // namespace official::keras
