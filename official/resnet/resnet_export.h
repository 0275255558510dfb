// The residual network for programs that serve it.
#pragma once

#include "absl/status/statusor.h"
#include "official/resnet/resnet_model.h"
#include "utils/export/serving_graph.h"
#include "utils/train/model.h"

namespace official::resnet {

// Returns the graph of `model`, which is ResnetModel, with the official signature `predict`: input `input` (the
// placeholder input_tensor) float32 [-1, image_size, image_size, 3], preprocessed as the model's features are; outputs
// classes int64 [-1] and probabilities float32 [-1, num_classes]. The official program fixes the batch at --batch_size;
// here it is free.
absl::StatusOr<exporting::ServingGraph> ResnetServingGraph(const train::Model& model, DatasetName dataset);

}  // namespace official::resnet
