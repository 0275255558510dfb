#include "official/step_graphs/step_count.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/node_cost.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/views.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/embedding/embedding.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/program/lowering.h"

namespace official::step_graphs {
namespace {

namespace op = compute::op;
using compute::DType;
using compute::Node;
using compute::TensorType;
using compute::Value;

bool IsOneOf(const Node& node, std::initializer_list<compute::OpName> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](compute::OpName name) { return node.Is(name); });
}

int64_t Elements(const Value& v) { return v.shape().num_elements(); }

// The largest number of ids of a node that reads or writes rows of tables by ids; -1 of any other.
int64_t NumIds(const Node& node) {
  if (!IsOneOf(node, {op::Gather, op::AddRows, op::Embedding, op::CatchUpRows, op::ApplyDeferredAdam,
                      recommendation::op::NeuralFactorizationScores, recommendation::op::NeuralFactorizationLoss})) {
    return -1;
  }
  int64_t most = 0;
  for (const Value& v : node.inputs()) {
    if (v.dtype() == DType::kInt32) most = std::max(most, Elements(v));
  }
  return most;
}

// The bytes that a node with so many ids touches of a value.
int64_t TouchedBytes(const TensorType& type, int64_t num_ids) {
  if (num_ids < 0 || type.shape.rank() < 2) return type.num_bytes();
  const int64_t rows = type.shape.dim(0);
  return rows <= num_ids ? type.num_bytes() : type.num_bytes() / rows * num_ids;
}

int64_t BytesOfNode(const Node& node) {
  const int64_t num_ids = NumIds(node);
  int64_t bytes = 0;
  absl::flat_hash_set<Value> read;
  for (const Value& v : node.inputs()) {
    const Value base = compute::Base(v);
    if (!read.insert(base).second) continue;
    const bool writes = node.op().has_side_effect && base.node()->Is(op::Variable);
    bytes += (writes ? 2 : 1) * TouchedBytes(v.type(), num_ids);
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    // Ids that pass through are not written.
    if (node.Is(op::CatchUpRows)) break;
    bytes += TouchedBytes(node.output_types()[i], num_ids);
  }
  return bytes;
}

// The type whose products decide how fast a node may be.
DType ProductType(const Node& node) {
  return node.Is(recommendation::op::NeuralFactorizationLoss) ? node.attrs().Get<DType>("dtype")
                                                              : compute::KeyType(node);
}

// The nodes that `end` is computed from, `end` among them.
absl::flat_hash_set<const Node*> Ancestors(const Node* end) {
  absl::flat_hash_set<const Node*> found = {end};
  std::vector<const Node*> left = {end};
  while (!left.empty()) {
    const Node* const node = left.back();
    left.pop_back();
    for (const Value& v : node->inputs()) {
      if (found.insert(v.node()).second) left.push_back(v.node());
    }
  }
  return found;
}

int64_t RooflineBytes(const compute::RewrittenGraph& step) {
  const absl::flat_hash_set<const Node*> forward = Ancestors(step.roots.fetches[0].node());
  absl::flat_hash_set<const Node*> from_feeds;
  absl::flat_hash_set<Value> counted;
  int64_t bytes = 0;
  const auto count = [&](const Value& v, int64_t touched) {
    if (counted.insert(compute::Base(v)).second) bytes += touched;
  };
  for (const Value& feed : step.roots.feeds) count(feed, feed.type().num_bytes());
  for (const auto& node : step.graph->nodes()) {
    const int64_t num_ids = NumIds(*node);
    if (node->Is(op::Input) || std::any_of(node->inputs().begin(), node->inputs().end(),
                                           [&](const Value& v) { return from_feeds.contains(v.node()); })) {
      from_feeds.insert(node.get());
    }
    if (!compute::NeedsKernel(*node)) continue;
    for (const Value& v : node->inputs()) {
      const Value base = compute::Base(v);
      const bool is_kept =
          forward.contains(base.node()) && from_feeds.contains(base.node()) && !forward.contains(node.get());
      // What updates variables reads their gradients.
      const bool is_gradient = node->op().is_update;
      if (base.node()->Is(op::Variable) || is_kept || is_gradient) count(v, TouchedBytes(v.type(), num_ids));
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<StepCount> CountStep(const train::BuiltModel& built, const GpuRates& gpu) {
  ASSIGN_OR_RETURN(const compute::PlannedLayouts lowered,
                   compute::Lower(*built.graph, built.roots, compute::kCudaKind));
  StepCount count;
  double product_seconds = 0;
  for (const auto& node : lowered.graph.graph->nodes()) {
    if (!compute::NeedsKernel(*node)) continue;
    ++count.nodes;
    const int64_t bytes = BytesOfNode(*node);
    const double flops = compute::FlopsOf(*node).value_or(0);
    const double rate = ProductType(*node) == DType::kFloat32 ? gpu.flops_float32 : gpu.flops_half;
    if (flops > 0) ++count.products;
    count.bytes += bytes;
    count.flops += flops;
    product_seconds += flops / rate;
    count.node_seconds += std::max(static_cast<double>(bytes) / gpu.bytes_per_second, flops / rate);
  }
  count.roofline_bytes = RooflineBytes(lowered.graph);
  count.roofline_seconds = std::max(static_cast<double>(count.roofline_bytes) / gpu.bytes_per_second, product_seconds);
  return count;
}

}  // namespace official::step_graphs
