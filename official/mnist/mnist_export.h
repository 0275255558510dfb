// The MNIST model for programs that serve it.
#pragma once

#include "absl/status/statusor.h"
#include "utils/export/serving_graph.h"
#include "utils/train/model.h"

namespace official::mnist {

// Returns the graph of `model`, which is MnistModel, with the official signature `classify`: input image float32
// [-1,28,28], outputs classes int64 [-1] and probabilities float32 [-1,10].
absl::StatusOr<exporting::ServingGraph> MnistServingGraph(const train::Model& model);

}  // namespace official::mnist
