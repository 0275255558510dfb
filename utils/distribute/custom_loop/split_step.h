// The graphs of a step: what one function becomes on each replica, and the updates of variables that are made
// elsewhere, by parameter servers or once for all replicas that share one copy of the variables. Then the graph of a
// replica computes the results and the gradients, and another one, from the same function, updates from these the
// variables that are there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/distribute/custom_loop/replica_context.h"

namespace official::distribute {

// ReplicaPlace: a replica among those that sum their values.
struct ReplicaPlace {
  int replica_id = 0;
  int num_replicas = 1;
  std::optional<compute::PackSizes> pack_sizes = std::nullopt;  // see Strategy::pack_sizes()
};

// Updates: the place where a replica's updates are made.
enum class Updates { kHere, kElsewhere };

struct ReplicaStep {
  std::unique_ptr<compute::Graph> graph;
  compute::GraphRoots roots;  // fetches: the results, then what is handed over, which is the same on all replicas
  int num_results = 0;
  int num_merge_calls = 0;
  std::string sums;  // the types of what the replicas sum, in order
  // The variables that what is handed over updates, in the order in which updates take it; empty for a number that all
  // of them get, such as the learning rate.
  std::vector<std::string> handed_over;
  std::vector<compute::VariableSpec> read;  // the variables that the graph reads
};

// Errors: those of BuildReplica.
absl::StatusOr<ReplicaStep> BuildReplicaStep(const ReplicaFn& fn, absl::Span<const compute::TensorType> inputs,
                                             const ReplicaPlace& place, Updates updates);

// Returns InvalidArgument if local replica `replica` and the first one do not make the same merge calls and sums, or
// have results of another number or dtype. Replicas that sum otherwise would wait for each other.
absl::Status CheckAlike(const ReplicaStep& first, const ReplicaStep& own, int replica);

struct UpdateStep {
  std::unique_ptr<compute::Graph> graph;
  compute::GraphRoots roots;                     // feeds: what is handed over of the variables that are here, or of all
  std::vector<compute::VariableSpec> variables;  // those that are updated, and what an optimizer adds to them
};

// PlacedHereFn returns what is here of a variable: itself, or some of its shards in their order; nothing if that is
// elsewhere.
using PlacedHereFn = std::function<std::vector<compute::VariableSpec>(const std::string& variable)>;

// `num_replicas` have summed what is handed over.
absl::StatusOr<UpdateStep> BuildUpdateStep(const ReplicaFn& fn, absl::Span<const compute::TensorType> inputs,
                                           int num_replicas, const PlacedHereFn& placed_here);

}  // namespace official::distribute
