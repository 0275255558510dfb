#include "utils/compute/graph/rewrite.h"

#include <algorithm>
#include <tuple>

#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

std::vector<FusionRule*>& Fusions() {
  static auto* rules = new std::vector<FusionRule*>;
  return *rules;
}

// The nodes that the roots need, in order.
std::vector<const Node*> LiveNodes(const Graph& graph, const GraphRoots& roots) {
  std::vector<bool> live(graph.nodes().size(), false);
  for (const Value& v : roots.feeds) live[v.node()->id()] = true;
  for (const Value& v : roots.fetches) live[v.node()->id()] = true;
  for (const Node* node : roots.targets) live[node->id()] = true;
  for (int id = static_cast<int>(live.size()) - 1; id >= 0; --id) {
    if (!live[id]) continue;
    for (const Value& v : graph.nodes()[id]->inputs()) live[v.node()->id()] = true;
  }
  std::vector<const Node*> nodes;
  for (const auto& node : graph.nodes()) {
    if (live[node->id()]) nodes.push_back(node.get());
  }
  return nodes;
}

std::vector<Value> Copy(const Graph& from, const Node& node, RewriteContext& context) {
  Graph& graph = context.graph();
  if (node.Is(op::Variable)) return {graph.Variable(from.variable(node))};
  if (node.Is(op::Input)) return {graph.Input(node.name(), node.output_types()[0])};
  std::vector<Value> inputs;
  for (const Value& v : node.inputs()) inputs.push_back(context.Mapped(v));
  Node* copy = graph.AddNode(node.op().name, inputs, node.attrs(), node.name());
  OFFICIAL_CHECK(copy != nullptr) << graph.status().ToString();
  std::vector<Value> outputs;
  for (int i = 0; i < copy->num_outputs(); ++i) outputs.push_back(copy->output(i));
  return outputs;
}

}  // namespace

RewriteContext::RewriteContext(const RewriteEnvironment& environment)
    : environment_(environment), graph_(std::make_unique<Graph>()) {}

Value RewriteContext::Mapped(Value old) const {
  const auto it = mapped_.find(old);
  OFFICIAL_CHECK(it != mapped_.end()) << old.node()->name() << " was not visited yet";
  return it->second;
}

void RewriteContext::Map(Value old, Value value) { mapped_[old] = value; }

int RewriteContext::UseCount(Value old) const {
  const auto it = uses_.find(old);
  return it == uses_.end() ? 0 : it->second;
}

const std::vector<const Node*>& RewriteContext::Readers(Value old) {
  if (readers_.empty()) {
    for (const Node* node : live_) {
      for (const Value& v : node->inputs()) readers_[v].push_back(node);
    }
  }
  static const auto* const none = new std::vector<const Node*>;
  const auto it = readers_.find(old);
  return it == readers_.end() ? *none : it->second;
}

const Node* RewriteContext::OnlyReader(Value old) {
  return UseCount(old) == 1 && Readers(old).size() == 1 ? Readers(old)[0] : nullptr;
}

Value RewriteContext::MappedSource(Value old) {
  if (!mapped_.contains(old)) mapped_[old] = Copy(*old.graph(), *old.node(), *this)[0];
  return Mapped(old);
}

RewrittenGraph Rewrite(const Graph& graph, const GraphRoots& roots, const RewriteEnvironment& environment,
                       const RewriteRule& rule) {
  RewriteContext context(environment);
  context.graph().set_batch_parts(graph.batch_parts());
  context.live_ = LiveNodes(graph, roots);
  for (const Node* node : context.live_) {
    for (const Value& v : node->inputs()) ++context.uses_[v];
  }
  for (const Value& v : roots.fetches) ++context.uses_[v];

  absl::flat_hash_map<const Node*, Node*> targets;
  for (Node* node : roots.targets) targets[node] = nullptr;
  for (const Node* node : context.live_) {
    if (node->num_outputs() > 0 && context.mapped_.contains(node->output(0))) continue;
    std::optional<std::vector<Value>> rewritten = rule(*node, context);
    const std::vector<Value> outputs = rewritten ? *std::move(rewritten) : Copy(graph, *node, context);
    OFFICIAL_CHECK(context.graph().status().ok()) << context.graph().status().ToString();
    OFFICIAL_CHECK(static_cast<int>(outputs.size()) == node->num_outputs()) << node->name();
    for (int i = 0; i < node->num_outputs(); ++i) {
      OFFICIAL_CHECK(!outputs[i] || outputs[i].type() == node->output_types()[i]) << node->name() << " changed type";
      context.mapped_[node->output(i)] = outputs[i];
    }
    if (const auto it = targets.find(node); it != targets.end()) {
      it->second = outputs.empty() ? context.graph().nodes().back().get() : outputs[0].node();
    }
  }

  RewrittenGraph result;
  for (const Value& v : roots.feeds) result.roots.feeds.push_back(context.Mapped(v));
  for (const Value& v : roots.fetches) result.roots.fetches.push_back(context.Mapped(v));
  for (const Node* node : roots.targets) result.roots.targets.push_back(targets[node]);
  result.graph = std::move(context.graph_);
  return result;
}

bool RegisterFusion(FusionRule rule) {
  Fusions().push_back(new FusionRule(std::move(rule)));
  return true;
}

std::vector<const FusionRule*> AllFusions() {
  std::vector<const FusionRule*> rules(Fusions().begin(), Fusions().end());
  std::sort(rules.begin(), rules.end(), [](const FusionRule* a, const FusionRule* b) {
    return std::tie(a->phase, a->name) < std::tie(b->phase, b->name);
  });
  return rules;
}

}  // namespace official::compute
