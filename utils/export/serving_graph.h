// ServingGraph: the predictions of a model as a TensorFlow graph, without the values of its variables.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/data/dataset.h"
#include "utils/export/answers.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/signature.h"
#include "utils/train/model.h"

namespace official::exporting {

struct ServingInput {
  std::string name;           // the name that clients use
  std::string placeholder;    // the name of its node
  std::vector<int64_t> dims;  // dimensions of one example; the values are the feature's, in the same order
};

struct ServingSignature {
  std::string key;                   // "classify", "predict", ...
  std::vector<ServingInput> inputs;  // one for each feature of the model, in their order
};

struct ServingGraph {
  GraphDefBuilder graph;
  Signature signature;
  std::set<std::string> not_trainable;  // the variables that an optimizer leaves alone, such as moving_mean
  std::shared_ptr<const TrainedModel> model = nullptr;  // that it was made of, unless it was written op by op
};

// Returns the graph of the model's predictions, by their names, computed in float32, whatever type the model is trained
// in. Its inputs are [-1, dims...] of each feature's type. `spec` is that of one example. Unimplemented if the model
// has an op that AddGraph does not know.
absl::StatusOr<ServingGraph> BuildServingGraph(const train::Model& model, const data::ElementSpec& spec,
                                               const ServingSignature& signature);

}  // namespace official::exporting
