// Graph passes. A pass walks the live nodes of a graph in order and builds a new graph; a rule may put other nodes in
// the place of a node. Nodes that nothing needs are not copied, so every pass removes dead code.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// What a graph is compiled for.
struct GraphRoots {
  std::vector<Value> feeds;    // Input nodes, in the order in which a run gets them
  std::vector<Value> fetches;  // values that a run gives back
  std::vector<Node*> targets;  // nodes with side effects that a run must execute
};

struct RewrittenGraph {
  std::unique_ptr<Graph> graph;
  GraphRoots roots;
};

// What the rules may know of the device that the graph is compiled for.
struct RewriteEnvironment {
  std::string device_kind;
  std::function<bool(absl::string_view op, DType dtype)> has_kernel;
};

class RewriteContext {
 public:
  explicit RewriteContext(const RewriteEnvironment& environment) : environment_(environment) {}

  // The graph under construction, in which a rule adds its nodes.
  Graph& graph() { return *graph_; }
  // What stands for an old value that was visited before.
  Value Mapped(Value old) const;
  // How often live nodes read an old value, fetches counted.
  int UseCount(Value old) const;
  // A rule that makes a fused op asks first whether the device has it.
  bool DeviceHasKernel(absl::string_view op, DType dtype) const { return environment_.has_kernel(op, dtype); }

 private:
  friend RewrittenGraph Rewrite(const Graph&, const GraphRoots&, const RewriteEnvironment&,
                                const std::function<std::optional<std::vector<Value>>(const Node&, RewriteContext&)>&);
  const RewriteEnvironment& environment_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  absl::flat_hash_map<Value, Value> mapped_;
  absl::flat_hash_map<Value, int> uses_;
};

// The new outputs of `node`, or nullopt if the rule does not apply (the node is then copied). For a node without
// outputs the last node that the rule adds takes its place.
using RewriteRule = std::function<std::optional<std::vector<Value>>(const Node& node, RewriteContext& context)>;

RewrittenGraph Rewrite(const Graph& graph, const GraphRoots& roots, const RewriteEnvironment& environment,
                       const RewriteRule& rule);

// Op families add the fusions that end in their ops. They run in ascending order of `phase`, then of name.
struct FusionRule {
  std::string name;
  // 0 algebraic moves (ReLU behind pooling), 1 kernels that fuse (convolution + bias + ReLU), 2 elementwise chains.
  int phase = 1;
  RewriteRule rule;
};
bool RegisterFusion(FusionRule rule);
std::vector<const FusionRule*> AllFusions();

}  // namespace official::compute
