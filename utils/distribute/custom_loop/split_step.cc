#include "utils/distribute/custom_loop/split_step.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/collective/collective.h"

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

absl::StatusOr<ReplicaStep> BuildReplicaStep(const ReplicaFn& fn, absl::Span<const compute::TensorType> inputs,
                                             const ReplicaPlace& place, Updates updates) {
  ReplicaStep step;
  step.graph = std::make_unique<compute::Graph>();
  ReplicaContext context(*step.graph, place.replica_id, place.num_replicas, place.pack_sizes);
  WorkerSide side;
  if (updates == Updates::kElsewhere) context.SplitUpdates(side);
  ASSIGN_OR_RETURN(step.roots, BuildReplica(fn, inputs, context));
  step.num_results = static_cast<int>(step.roots.fetches.size());
  step.num_merge_calls = context.num_merge_calls();
  step.roots.fetches.insert(step.roots.fetches.end(), side.values.begin(), side.values.end());
  step.handed_over = std::move(side.names);
  step.read = VariablesOf(*step.graph, step.roots);
  for (const auto& node : step.graph->nodes()) {
    if (!node->Is(compute::op::AllReduceStart)) continue;
    for (const compute::TensorType& type : node->output_types()) absl::StrAppend(&step.sums, " ", type.ToString());
  }
  return step;
}

absl::Status CheckAlike(const ReplicaStep& first, const ReplicaStep& own, int replica) {
  if (own.num_merge_calls != first.num_merge_calls) {
    return absl::InvalidArgumentError(
        absl::StrCat("Some replicas made a different number of replica_context().merge_call() calls: replica 0 ",
                     first.num_merge_calls, ", replica ", replica, " ", own.num_merge_calls));
  }
  if (own.sums != first.sums) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Some replicas made a different number of all_reduce calls, or of other values: replica 0 sums [", first.sums,
        " ], replica ", replica, " [", own.sums, " ]; all replicas must sum the same in the same order"));
  }
  if (own.num_results != first.num_results) {
    return absl::InvalidArgumentError(absl::StrCat("the function has ", first.num_results,
                                                   " results on one replica and ", own.num_results,
                                                   " on another; all must have the same"));
  }
  for (int i = 0; i < own.num_results; ++i) {
    const Value &a = first.roots.fetches[i], &b = own.roots.fetches[i];
    if (a.dtype() == b.dtype()) continue;
    return absl::InvalidArgumentError(absl::StrCat("result ", i, " of the function is ", a.type().ToString(),
                                                   " on one replica and ", b.type().ToString(),
                                                   " on another; all must have the same dtype"));
  }
  return absl::OkStatus();
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
