#include "utils/distribute/custom_loop/split_step.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

using compute::Value;

// A replica makes no updates.
class WorkerSide : public UpdateSplit {
 public:
  bool sums() const override { return true; }
  Value Number(Value value) override {
    names.push_back("");
    values.push_back(value);
    return Value();
  }
  std::vector<compute::VariableGradient> Update(const compute::VariableGradient& update) override {
    names.push_back(update.variable.node()->name());
    values.push_back(update.gradient);
    return {};
  }

  std::vector<std::string> names;  // of the variables; empty for a number
  std::vector<Value> values;
};

// Updates get what a replica has computed.
class UpdateSide : public UpdateSplit {
 public:
  UpdateSide(compute::Graph& graph, const PlacedHereFn& placed_here) : graph_(graph), placed_here_(placed_here) {}

  bool sums() const override { return false; }
  Value Number(Value value) override { return Feed(value.type()); }
  std::vector<compute::VariableGradient> Update(const compute::VariableGradient& update) override {
    std::vector<compute::VariableGradient> updates;
    for (const compute::VariableSpec& spec : placed_here_(update.variable.node()->name())) {
      updates.push_back({graph_.Variable(spec), Feed(spec.type)});
    }
    return updates;
  }

  std::vector<Value> feeds;

 private:
  Value Feed(const compute::TensorType& type) {
    return feeds.emplace_back(graph_.Input(absl::StrCat("handed_over_", feeds.size()), type));
  }

  compute::Graph& graph_;
  const PlacedHereFn& placed_here_;
};

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

absl::StatusOr<WorkerStep> BuildWorkerStep(const ReplicaFn& fn, absl::Span<const compute::TensorType> inputs,
                                           const ReplicaPlace& place) {
  WorkerStep step;
  step.graph = std::make_unique<compute::Graph>();
  ReplicaContext context(*step.graph, place.replica_id, place.num_replicas, place.pack_sizes);
  WorkerSide side;
  context.SplitUpdates(side);
  ASSIGN_OR_RETURN(step.roots, BuildReplica(fn, inputs, context));
  step.num_results = static_cast<int>(step.roots.fetches.size());
  step.num_merge_calls = context.num_merge_calls();
  step.roots.fetches.insert(step.roots.fetches.end(), side.values.begin(), side.values.end());
  step.handed_over = std::move(side.names);
  step.read = VariablesOf(*step.graph, step.roots);
  return step;
}

absl::StatusOr<UpdateStep> BuildUpdateStep(const ReplicaFn& fn, absl::Span<const compute::TensorType> inputs,
                                           int num_replicas, const PlacedHereFn& placed_here) {
  UpdateStep step;
  step.graph = std::make_unique<compute::Graph>();
  ReplicaContext context(*step.graph, /*replica_id=*/0, num_replicas, /*pack_sizes=*/std::nullopt);
  UpdateSide side(*step.graph, placed_here);
  context.SplitUpdates(side);
  ASSIGN_OR_RETURN(step.roots, BuildReplica(fn, inputs, context));
  step.roots.feeds = std::move(side.feeds);
  step.roots.fetches.clear();
  step.variables = VariablesOf(*step.graph, step.roots);
  return step;
}

}  // namespace official::distribute
