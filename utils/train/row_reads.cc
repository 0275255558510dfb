#include "utils/train/row_reads.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"

namespace official::train {
namespace {

using compute::Node;
using compute::Value;
using Values = absl::flat_hash_set<Value>;

// True if the value is computed from `known` values and constants alone.
bool DependsOnlyOn(const Values& known, Value value) {
  std::vector<Value> open = {value};
  absl::flat_hash_set<const Node*> seen;
  while (!open.empty()) {
    const Value next = open.back();
    open.pop_back();
    const Node& node = *next.node();
    if (known.contains(next) || !seen.insert(&node).second) continue;
    if (node.Is(compute::op::Constant)) continue;
    if (node.op().is_source || node.op().has_side_effect) return false;
    open.insert(open.end(), node.inputs().begin(), node.inputs().end());
  }
  return true;
}

// The row numbers that `ids` consists of, itself among them.
Values PartsOf(Value ids) {
  Values parts;
  std::vector<Value> open = {ids};
  while (!open.empty()) {
    const Value next = open.back();
    open.pop_back();
    if (!parts.insert(next).second) continue;
    const Node& node = *next.node();
    if (!node.Is(compute::op::Reshape) && !node.Is(compute::op::Concat)) continue;
    open.insert(open.end(), node.inputs().begin(), node.inputs().end());
  }
  return parts;
}

// True if no node reads other rows of the table than those.
bool IsReadOnlyAt(const Values& ids, const compute::Graph& graph, Value table) {
  for (const auto& node : graph.nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (node->input(i) != table) continue;
      const std::optional<int> at = node->op().row_ids ? node->op().row_ids(*node, i) : std::nullopt;
      if (!at || !ids.contains(node->input(*at))) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<RowReads> FindRowReads(const compute::Graph& graph, absl::Span<const Value> variables,
                                   absl::Span<const Value> gradients, absl::Span<const Value> examples) {
  const Values known(examples.begin(), examples.end());
  std::vector<RowReads> found;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!gradients[i].node()->Is(compute::op::IndexedSlices)) continue;
    if (variables[i].dtype() != compute::DType::kFloat32) continue;
    const Value ids = gradients[i].node()->input(compute::indexed_slices::kIndices);
    if (!DependsOnlyOn(known, ids) || !IsReadOnlyAt(PartsOf(ids), graph, variables[i])) continue;
    auto same = std::find_if(found.begin(), found.end(), [&](const RowReads& reads) {
      return reads.ids == ids && reads.tables[0].shape().dim(0) == variables[i].shape().dim(0);
    });
    if (same == found.end()) same = found.insert(found.end(), RowReads{.ids = ids, .tables = {}, .gradients = {}});
    same->tables.push_back(variables[i]);
    same->gradients.push_back(gradients[i]);
  }
  return found;
}

}  // namespace official::train
