// The graphs that the official programs compute, of every model, mode and type, for tests and counts that look at all
// of them. They are built and not run, so their batches are those of real runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "utils/compute/core/loss_scale.h"
#include "utils/data/dataset.h"
#include "utils/train/model.h"
#include "utils/train/step.h"

namespace official::step_graphs {

// A model as its program trains it, with the tensors of a batch of `batch` examples.
struct TrainedModel {
  std::string name;  // "resnet-50 v1"
  train::Model model;
  int64_t batch = 0;  // of one replica
  std::string unit = "examples";
  bool predicts = true;  // false: prediction is not one pass over a batch
  // The names and types of the tensors of a batch, as train::BuildModel takes them.
  std::function<data::ElementSpec(train::Mode mode, int64_t batch)> types;
};

// Returns the models in the sizes that are counted in docs/performance.md.
std::vector<TrainedModel> CountedModels();

// Returns the smallest network of each program, the Transformer with one layer only, with a small batch.
std::vector<TrainedModel> SmallModels();

// A graph with what it is called in messages.
struct StepGraph {
  std::string name;  // "resnet-50 v1, training, bfloat16, 2 replicas"
  int num_replicas = 1;
  const compute::Graph& graph;
  const compute::GraphRoots& roots;
};

// Calls `visit` with each graph of each model: training, its parts with gradient accumulation, with a dynamic loss
// scale, evaluation, prediction and translation, in each type that the programs compute in, for one replica and for
// two. Returns the first error, naming the graph.
absl::Status VisitGraphs(absl::FunctionRef<absl::Status(const StepGraph&)> visit);

// Returns the names of a mode and of a type in messages.
std::string NameOf(train::Mode mode);

// The loss scale of a type that is the default of the programs.
compute::LossScale DefaultLossScale(compute::DType dtype);

}  // namespace official::step_graphs
