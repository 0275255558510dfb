#include "utils/distribute/coordinator/step_graphs.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::coordinator {
namespace {

using compute::Value;
using distribute::ReplicaContext;

ReplicaContext ContextOf(compute::Graph& graph) {
  return {graph, /*replica_id=*/0, /*num_replicas=*/1, /*pack_sizes=*/std::nullopt};
}

std::string NameOf(Value variable) { return variable ? variable.node()->name() : ""; }

// Returns the variables that the roots need, in the order of their creation.
std::vector<compute::VariableSpec> VariablesOf(const compute::Graph& graph, const compute::GraphRoots& roots) {
  absl::flat_hash_set<const compute::Node*> live;
  std::vector<const compute::Node*> to_visit(roots.targets.begin(), roots.targets.end());
  for (const Value& fetch : roots.fetches) to_visit.push_back(fetch.node());
  while (!to_visit.empty()) {
    const compute::Node* const node = to_visit.back();
    to_visit.pop_back();
    if (!live.insert(node).second) continue;
    for (const Value& input : node->inputs()) to_visit.push_back(input.node());
  }
  std::vector<compute::VariableSpec> variables;
  for (const auto& node : graph.nodes()) {
    if (live.contains(node.get()) && node->Is(compute::op::Variable)) variables.push_back(graph.variable(*node));
  }
  return variables;
}

}  // namespace

absl::StatusOr<WorkerStep> BuildWorkerStep(const distribute::ReplicaFn& fn,
                                           absl::Span<const compute::TensorType> inputs) {
  WorkerStep step;
  step.graph = std::make_unique<compute::Graph>();
  ReplicaContext context = ContextOf(*step.graph);
  std::vector<Value> handed_over;
  context.HandOverUpdates([&](Value variable, Value value) {
    step.handed_over.push_back(NameOf(variable));
    handed_over.push_back(value);
    return Value();
  });
  ASSIGN_OR_RETURN(step.roots, distribute::BuildReplica(fn, inputs, context));
  step.num_results = static_cast<int>(step.roots.fetches.size());
  step.roots.fetches.insert(step.roots.fetches.end(), handed_over.begin(), handed_over.end());
  step.read = VariablesOf(*step.graph, step.roots);
  return step;
}

absl::StatusOr<ServerStep> BuildServerStep(const distribute::ReplicaFn& fn,
                                           absl::Span<const compute::TensorType> inputs,
                                           const std::function<bool(const std::string& variable)>& is_placed_here) {
  ServerStep step;
  step.graph = std::make_unique<compute::Graph>();
  ReplicaContext context = ContextOf(*step.graph);
  std::vector<Value> feeds;
  context.HandOverUpdates([&](Value variable, Value value) {
    if (variable && !is_placed_here(NameOf(variable))) return Value();
    feeds.push_back(step.graph->Input(absl::StrCat("handed_over_", feeds.size()), value.type()));
    return feeds.back();
  });
  ASSIGN_OR_RETURN(step.roots, distribute::BuildReplica(fn, inputs, context));
  step.roots.feeds = std::move(feeds);
  step.roots.fetches.clear();
  step.variables = VariablesOf(*step.graph, step.roots);
  return step;
}

}  // namespace official::coordinator
