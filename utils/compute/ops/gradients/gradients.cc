#include "utils/compute/ops/gradients/gradients.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"

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
Value Total(absl::Span<const Value> parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<Value> indices, rows;
  Value dense;
  for (const Value& part : parts) {
    if (part.node()->Is(op::IndexedSlices)) {
      indices.push_back(part.node()->input(indexed_slices::kIndices));
      rows.push_back(part.node()->input(indexed_slices::kRows));
    } else {
      dense = dense ? Add(dense, part) : part;
    }
  }
  if (indices.empty()) return dense;
  const auto join = [](const std::vector<Value>& values) {
    return values.size() == 1 ? values[0] : Concat(values, /*axis=*/0);
  };
  if (dense) return AddRows(dense, join(indices), join(rows));
  return IndexedSlices(join(indices), join(rows), parts[0].shape());
}

// The gradient of input i, given one in the shape to which the input was broadcast: summed over the dimensions along
// which the input was repeated.
Value UndoBroadcast(const Node& node, int i, Value gradient) {
  if (!gradient) return gradient;
  if (node.Is(op::BiasAdd) && i == bias_add::kBias) return BiasAddGrad(gradient);
  const Shape& shape = node.input(i).shape();
  if (gradient.shape() == shape) return gradient;
  const int added = gradient.shape().rank() - shape.rank();
  std::vector<int64_t> axes;
  for (int d = 0; d < gradient.shape().rank(); ++d) {
    if (d < added || (shape.dim(d - added) == 1 && gradient.shape().dim(d) != 1)) axes.push_back(d);
  }
  const Value sum = axes.empty() ? gradient : Sum(gradient, axes);
  return Reshape(sum, {shape.dims().begin(), shape.dims().end()});
}

// Unimplemented if a gradient that reaches `node`, whose op has none, would flow on to an input that depends on what is
// differentiated. Only floats have gradients; that of Sign is 0.
absl::Status CheckNoPathEnds(const Node& node, const absl::flat_hash_set<const Node*>& on_path) {
  if (node.Is(op::Sign)) return absl::OkStatus();
  for (const Value& input : node.inputs()) {
    if (!IsFloating(input.dtype()) || !on_path.contains(input.node())) continue;
    return absl::UnimplementedError(
        absl::StrCat("the op ", node.op().name.text(), " (node ", node.name(), ", ", node.output_types()[0].ToString(),
                     ") has no gradient, but the gradient of its input ", input.node()->name(),
                     " is needed; compute it with ops that have one, which docs/ops.md lists"));
  }
  return absl::OkStatus();
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

  const std::vector<Node*> between = NodesBetween(xs, ys);
  const absl::flat_hash_set<const Node*> on_path(between.begin(), between.end());
  for (Node* node : between) {
    std::vector<Value> output_gradients(node->num_outputs());
    bool any = false;
    for (int i = 0; i < node->num_outputs(); ++i) {
      const auto it = parts.find(node->output(i));
      if (it == parts.end()) continue;
      output_gradients[i] = Total(it->second);
      it->second = {output_gradients[i]};
      any = true;
    }
    if (!any) continue;
    if (!node->op().gradient) {
      graph.Fail(CheckNoPathEnds(*node, on_path));
      if (!graph.status().ok()) return result;
      continue;
    }
    std::vector<Value> input_gradients = node->op().gradient(*node, output_gradients);
    if (!graph.status().ok()) return result;
    OFFICIAL_CHECK(static_cast<int>(input_gradients.size()) == node->num_inputs())
        << node->op().name << ": " << input_gradients.size() << " gradients for " << node->num_inputs() << " inputs";
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (node->op().broadcasts) input_gradients[i] = UndoBroadcast(*node, i, input_gradients[i]);
      if (!input_gradients[i]) continue;
      OFFICIAL_CHECK(input_gradients[i].type() == node->input(i).type())
          << node->op().name << ": gradient of input " << i << " is " << input_gradients[i].type().ToString()
          << ", the input " << node->input(i).type().ToString();
      parts[node->input(i)].push_back(input_gradients[i]);
    }
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto it = parts.find(xs[i]);
    if (it != parts.end()) result[i] = Total(it->second);
  }
  return result;
}

}  // namespace official::compute
