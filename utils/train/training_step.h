// What the functions that build a training step (step.cc, server_step.h) hand to each other.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/train/model.h"
#include "utils/train/row_reads.h"
#include "utils/train/step.h"

namespace official::train {

// What the examples of a step give, one list for each purpose.
struct Results {
  std::vector<compute::Value> gradients;        // of `variables`, in the same order
  std::vector<compute::Value> moving_averages;  // the values that the moving averages take in
  std::vector<compute::Value> shown;            // with micro-batches: the loss and the logged values

  std::vector<std::vector<compute::Value>*> lists() { return {&gradients, &moving_averages, &shown}; }

  // All values in one list, for what is done to all of them at once.
  std::vector<compute::Value> All() {
    std::vector<compute::Value> all;
    for (const std::vector<compute::Value>* list : lists()) all.insert(all.end(), list->begin(), list->end());
    return all;
  }
  // Replaces the values by those of a list in the order of All().
  void Replace(const std::vector<compute::Value>& all) {
    auto next = all.begin();
    for (std::vector<compute::Value>* list : lists()) {
      for (compute::Value& value : *list) value = *next++;
    }
  }
};

// The graph of a training step while it is built.
struct TrainingStep {
  const Model& model;
  const ModelSpec& spec;
  const BuildOptions& options;
  BuiltModel& built;
  std::vector<compute::Count>& counts;          // what is counted, at the end
  const std::vector<compute::Value>& examples;  // the features and labels
  compute::Value weight;                        // of the micro-batch and the replica in the whole batch; invalid: 1
  compute::Value loss_scale = {};               // invalid: 1
  std::vector<compute::Value> variables = {};
  std::vector<RowReads> row_reads = {};                      // of further variables
  std::vector<compute::MovingAverage> moving_averages = {};  // of which the results have the values
  Results results = {};
  compute::Value gradient_norm =
      {};  // of all gradients as one vector, with the loss scale; invalid if nothing needs it

  // True if this is the part of an update that a parameter server makes.
  bool is_server() const { return options.server_update && options.server_update->server; }
  // True if this is the part of an update that is made on another task.
  bool updates_elsewhere() const { return options.server_update && !options.server_update->server; }

  compute::Graph& graph() const { return *built.graph; }
  bool ok() const { return graph().status().ok(); }
};

}  // namespace official::train
