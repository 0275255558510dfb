#include "utils/compute/program/layout_planner.h"

#include <map>
#include <utility>

#include "utils/compute/graph/may_move.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/reorder/reorder.h"

namespace official::compute {

PlannedLayouts PlanLayouts(RewrittenGraph graph, const RewriteEnvironment& environment, absl::string_view device_kind) {
  PlannedLayouts planned;
  absl::flat_hash_map<Value, Layout>& layouts = planned.layouts;  // of values of the new graph
  std::map<std::pair<int, std::pair<int, Layout>>, Value> reordered;
  const auto in_layout = [&](Value v, Layout wanted) {
    const Layout now = planned.LayoutOf(v);
    if (now == wanted) return v;
    Value& result = reordered[{v.node()->id(), {v.index(), wanted}}];
    // A variable may have been updated since.
    if (!result || !MayMoveToEnd(*result.node())) {
      result = Reorder(v, now, wanted);
      layouts[result] = wanted;
    }
    return result;
  };
  planned.graph = Rewrite(
      *graph.graph, graph.roots, environment,
      [&](const Node& node, RewriteContext& context) -> std::optional<std::vector<Value>> {
        if (node.op().is_source) return std::nullopt;
        std::vector<Value> inputs;
        std::vector<Layout> current;
        for (const Value& v : node.inputs()) {
          inputs.push_back(context.Mapped(v));
          current.push_back(planned.LayoutOf(inputs.back()));
        }
        const KernelDef* def = KernelRegistry::Global().Find(node.op().name, device_kind, KeyType(node));
        const LayoutChoice choice = def != nullptr && def->layout ? def->layout(node, current) : AllRowMajor(node);
        for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = in_layout(inputs[i], choice.inputs[i]);
        Node* copy = context.graph().AddNode(node.op().name, inputs, node.attrs(), node.name());
        OFFICIAL_CHECK(copy != nullptr) << context.graph().status().ToString();
        std::vector<Value> outputs;
        for (int i = 0; i < copy->num_outputs(); ++i) {
          Value output = copy->output(i);
          if (choice.outputs[i] != Layout::kRowMajor) layouts[output] = choice.outputs[i];
          // What the caller fetches is row-major.
          for (const Value& fetch : graph.roots.fetches) {
            if (fetch == node.output(i)) output = in_layout(output, Layout::kRowMajor);
          }
          outputs.push_back(output);
        }
        return outputs;
      });
  return planned;
}

}  // namespace official::compute
