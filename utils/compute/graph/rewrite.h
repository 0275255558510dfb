// Graph passes. A pass walks the live nodes of a graph in order and builds a new graph; a rule may replace a node by
// other nodes. Nodes that nothing needs are not copied, so every pass removes dead code.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// The values and nodes that a graph is compiled for.
struct GraphRoots {
  std::vector<Value> feeds;    // Input nodes, in the order in which a run gets them
  std::vector<Value> fetches;  // values that a run gives back
  std::vector<Node*> targets;  // nodes with side effects that a run must execute
};

struct RewrittenGraph {
  std::unique_ptr<Graph> graph;
  GraphRoots roots;
};

// The properties of the target device that rules may depend on.
struct RewriteEnvironment {
  std::string device_kind;
  std::function<bool(OpName op, DType dtype)> has_kernel;
};

class RewriteContext {
 public:
  explicit RewriteContext(const RewriteEnvironment& environment);

  // The graph under construction, in which a rule adds its nodes.
  Graph& graph() { return *graph_; }
  // The new value for an old value that was visited before.
  Value Mapped(Value old) const;
  // The number of reads of an old value by live nodes and fetches.
  int UseCount(Value old) const;
  // The live nodes that read an old value, in order, once for each input; without fetches.
  const std::vector<const Node*>& Readers(Value old);
  // The node that alone reads an old value, once, which is not fetched; nullptr if there is none.
  const Node* OnlyReader(Value old);
  // Sets the new value for an old one of which no read has been visited yet. Where the old node has not been visited
  // itself, it is not: all its outputs must be set.
  void Map(Value old, Value value);
  // The same as Mapped() for an old Variable, Input or Constant, which need not have been visited yet.
  Value MappedSource(Value old);
  // True if the device has a kernel for this op: a rule that makes a fused op must check this first.
  bool DeviceHasKernel(OpName op, DType dtype) const { return environment_.has_kernel(op, dtype); }

 private:
  friend RewrittenGraph Rewrite(const Graph&, const GraphRoots&, const RewriteEnvironment&,
                                const std::function<std::optional<std::vector<Value>>(const Node&, RewriteContext&)>&);
  const RewriteEnvironment& environment_;
  std::unique_ptr<Graph> graph_;
  absl::flat_hash_map<Value, Value> mapped_;
  absl::flat_hash_map<Value, int> uses_;
  std::vector<const Node*> live_;                                 // nodes of the old graph
  absl::flat_hash_map<Value, std::vector<const Node*>> readers_;  // filled when a rule asks
};

// Returns the new outputs of `node`, or nullopt if the rule does not apply (the node is then copied). A node without
// outputs is replaced by the last node that the rule adds. An output may be invalid if a later call of the rule maps it
// before it is read.
using RewriteRule = std::function<std::optional<std::vector<Value>>(const Node& node, RewriteContext& context)>;

RewrittenGraph Rewrite(const Graph& graph, const GraphRoots& roots, const RewriteEnvironment& environment,
                       const RewriteRule& rule);

// Op families add the fusions that end in their ops. They run in ascending order of `phase`, then of name.
struct FusionRule {
  std::string name;
  // The phase is 0 for algebraic moves (ReLU after pooling), 1 for kernels that fuse (convolution + bias + ReLU), 2 for
  // elementwise chains, 3 for what computes the same on many tensors.
  int phase = 1;
  RewriteRule rule;
};
bool RegisterFusion(FusionRule rule);
std::vector<const FusionRule*> AllFusions();

}  // namespace official::compute
