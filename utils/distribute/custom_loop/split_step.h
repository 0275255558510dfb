// The two graphs of a step, a function that a worker runs and whose updates parameter servers make. Both come from one
// call of the same function: the worker's computes the results and the gradients, the server's updates from these the
// variables that are placed on it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/distribute/custom_loop/replica_context.h"

namespace official::coordinator {

struct WorkerStep {
  std::unique_ptr<compute::Graph> graph;
  compute::GraphRoots roots;  // fetches: the results, then what is handed over
  int num_results = 0;
  // The variables that what is handed over updates, in the order in which servers take it; empty for a number that all
  // servers get, such as the learning rate.
  std::vector<std::string> handed_over;
  std::vector<compute::VariableSpec> read;  // the variables that the graph reads
};

// Errors: those of BuildReplica.
absl::StatusOr<WorkerStep> BuildWorkerStep(const distribute::ReplicaFn& fn,
                                           absl::Span<const compute::TensorType> inputs);

struct ServerStep {
  std::unique_ptr<compute::Graph> graph;
  compute::GraphRoots roots;                     // feeds: what is handed over of this server's variables, or of all
  std::vector<compute::VariableSpec> variables;  // those that are updated, and what an optimizer adds to them
};

// PlacedHereFn returns what a server has of a variable: itself, or some of its shards in their order; nothing if that
// is elsewhere.
using PlacedHereFn = std::function<std::vector<compute::VariableSpec>(const std::string& variable)>;

absl::StatusOr<ServerStep> BuildServerStep(const distribute::ReplicaFn& fn,
                                           absl::Span<const compute::TensorType> inputs,
                                           const PlacedHereFn& placed_here);

}  // namespace official::coordinator
