#include "utils/compute/program/constant_folding.h"

#include <algorithm>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/program/program.h"

namespace official::compute {

std::optional<std::vector<Value>> FoldConstants(const Node& node, RewriteContext& context) {
  constexpr int64_t kLargest = int64_t{1} << 20;
  if (node.op().is_source || node.op().has_side_effect || node.num_inputs() == 0 || node.num_outputs() != 1 ||
      node.output_types()[0].num_bytes() > kLargest) {
    return std::nullopt;
  }
  std::vector<Tensor> inputs;
  for (const Value& v : node.inputs()) {
    const Value mapped = context.Mapped(v);
    if (!mapped || !mapped.node()->Is(op::Constant)) return std::nullopt;
    inputs.push_back(mapped.node()->attrs().Get<Tensor>("value"));
  }
  const absl::StatusOr<std::unique_ptr<Device>> cpu = MakeDevice("cpu");
  if (!cpu.ok()) return std::nullopt;
  Graph graph;
  GraphRoots roots;
  for (const Tensor& input : inputs) roots.feeds.push_back(graph.Input("constant", input.type()));
  Node* copy = graph.AddNode(node.op().name, roots.feeds, node.attrs());
  if (copy == nullptr) return std::nullopt;
  roots.fetches = {copy->output(0)};
  const absl::StatusOr<std::vector<Tensor>> result = Evaluate(graph, roots, inputs, **cpu, {.fuse = false});
  if (!result.ok()) return std::nullopt;
  return std::vector<Value>{context.graph().Constant((*result)[0])};
}

}  // namespace official::compute
