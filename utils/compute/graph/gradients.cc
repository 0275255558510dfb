#include "utils/compute/graph/gradients.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/graph/gradient_ops.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

// Nodes on a path from one of `xs` to one of `ys`, in descending order of id.
std::vector<Node*> NodesBetween(absl::Span<const Value> xs, absl::Span<const Value> ys) {
  int last = 0;
  absl::flat_hash_set<const Node*> needed;
  for (const Value& y : ys) {
    last = std::max(last, y.node()->id());
    needed.insert(y.node());
  }
  absl::flat_hash_set<const Node*> depends;  // on one of xs
  for (const Value& x : xs) depends.insert(x.node());
  const auto& nodes = ys[0].graph()->nodes();
  for (int id = 0; id <= last; ++id) {
    const Node* node = nodes[id].get();
    if (std::any_of(node->inputs().begin(), node->inputs().end(),
                    [&](const Value& v) { return depends.contains(v.node()); })) {
      depends.insert(node);
    }
  }
  std::vector<Node*> result;
  for (int id = last; id >= 0; --id) {
    Node* node = nodes[id].get();
    if (!needed.contains(node) || !depends.contains(node)) continue;
    result.push_back(node);
    for (const Value& v : node->inputs()) needed.insert(v.node());
  }
  return result;
}

// The sum of the contributions to one value's gradient. Several sparse ones stay sparse; beside dense ones they are
// added to their sum row by row.
Value Sum(absl::Span<const Value> parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<Value> indices, rows;
  Value dense;
  for (const Value& part : parts) {
    if (part.node()->Is(op::IndexedSlices)) {
      indices.push_back(part.node()->input(indexed_slices::kIndices));
      rows.push_back(part.node()->input(indexed_slices::kRows));
    } else {
      dense = dense ? Apply(op::Add, {dense, part}) : part;
    }
  }
  if (indices.empty()) return dense;
  const Attrs axis{{"axis", int64_t{0}}};
  const auto join = [&](const std::vector<Value>& values) {
    return values.size() == 1 ? values[0] : Apply(op::Concat, values, axis);
  };
  if (dense) return Apply(op::AddRows, {dense, join(indices), join(rows)});
  return Apply(op::IndexedSlices, {join(indices), join(rows)}, parts[0].node()->attrs());
}

}  // namespace

std::vector<Value> Gradients(Value y, absl::Span<const Value> xs) {
  if (!y) return std::vector<Value>(xs.size());
  Tensor one(DType::kFloat32, y.shape());
  std::fill_n(one.data<float>(), one.num_elements(), 1.0f);
  return Gradients({y}, {y.graph()->Constant(one.CastTo(y.dtype()))}, xs);
}

std::vector<Value> Gradients(absl::Span<const Value> ys, absl::Span<const Value> seeds, absl::Span<const Value> xs) {
  std::vector<Value> result(xs.size());
  const auto failed = [](const Value& v) { return !v; };
  if (std::any_of(ys.begin(), ys.end(), failed) || std::any_of(seeds.begin(), seeds.end(), failed) ||
      std::any_of(xs.begin(), xs.end(), failed)) {
    return result;
  }
  Graph& graph = *ys[0].graph();
  absl::flat_hash_map<Value, std::vector<Value>> parts;
  for (size_t i = 0; i < ys.size(); ++i) parts[ys[i]].push_back(seeds[i]);

  for (Node* node : NodesBetween(xs, ys)) {
    std::vector<Value> output_gradients(node->num_outputs());
    bool any = false;
    for (int i = 0; i < node->num_outputs(); ++i) {
      const auto it = parts.find(node->output(i));
      if (it == parts.end()) continue;
      output_gradients[i] = Sum(it->second);
      it->second = {output_gradients[i]};
      any = true;
    }
    if (!any || !node->op().gradient) continue;
    const std::vector<Value> input_gradients = node->op().gradient(*node, output_gradients);
    if (!graph.status().ok()) return result;
    OFFICIAL_CHECK(static_cast<int>(input_gradients.size()) == node->num_inputs())
        << node->op().name << ": " << input_gradients.size() << " gradients for " << node->num_inputs() << " inputs";
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!input_gradients[i]) continue;
      OFFICIAL_CHECK(input_gradients[i].type() == node->input(i).type())
          << node->op().name << ": gradient of input " << i << " is " << input_gradients[i].type().ToString()
          << ", the input " << node->input(i).type().ToString();
      parts[node->input(i)].push_back(input_gradients[i]);
    }
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto it = parts.find(xs[i]);
    if (it != parts.end()) result[i] = Sum(it->second);
  }
  return result;
}

}  // namespace official::compute
