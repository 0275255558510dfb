#include "official/step_graphs/step_count.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv_pool/geometry.h"
#include "utils/compute/ops/embedding/embedding.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/program/lowering.h"

namespace official::step_graphs {
namespace {

namespace op = compute::op;
using compute::DType;
using compute::Node;
using compute::Shape;
using compute::TensorType;
using compute::Value;

bool IsOneOf(const Node& node, std::initializer_list<compute::OpName> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](compute::OpName name) { return node.Is(name); });
}

int64_t Elements(const Value& v) { return v.shape().num_elements(); }

// The largest number of ids of a node that reads or writes rows of tables by ids; -1 of any other.
int64_t NumIds(const Node& node) {
  if (!IsOneOf(node, {op::Gather, op::AddRows, op::Embedding, op::CatchUpRows, op::ApplyDeferredAdam, op::ApplyLazyAdam,
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

int64_t BytesOf(const Node& node) {
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

// Of a convolution: `y` elements of its result, each the sum over a filter.
double ConvFlops(int64_t y, const Shape& filters) {
  return 2.0 * static_cast<double>(y) * static_cast<double>(filters.num_elements() / filters.dim(3));
}

// Of attention: `products` products of the tokens of a sentence with those of another. Sentences have equal lengths.
double AttentionFlops(const Value& queries, const Value& keys, const Value& key_offsets, bool causal, int products) {
  const auto sentences = static_cast<double>(Elements(key_offsets) - 1);
  const double key_tokens = static_cast<double>(keys.shape().dim(0)) / sentences * (causal ? 0.5 : 1);
  return 2.0 * products * static_cast<double>(Elements(queries)) * key_tokens;
}

// Of the layers of a network that is one node: each kernel is followed by its bias.
double LayerFlops(const Node& node, int64_t samples, int passes) {
  double flops = 0;
  for (int i = 0; i + 1 < node.num_inputs(); ++i) {
    const Shape &kernel = node.input(i).shape(), &bias = node.input(i + 1).shape();
    if (kernel.rank() == 2 && bias.rank() == 1 && kernel.dim(1) == bias.dim(0)) {
      flops += 2.0 * passes * static_cast<double>(samples) * static_cast<double>(kernel.num_elements());
    }
  }
  return flops;
}

double FlopsOf(const Node& node) {
  if (IsOneOf(node, {op::MatMul, op::FusedMatMul, op::FusedMatMulBiasAddGrad})) {
    const double a = static_cast<double>(Elements(node.input(compute::matmul::kA)));
    const double b = static_cast<double>(Elements(node.input(compute::matmul::kB)));
    const double y = static_cast<double>(Elements(node.output(compute::matmul::kY)));
    // m * k, k * n and m * n.
    return y == 0 ? 0 : 2 * std::sqrt(a * b * y);
  }
  if (IsOneOf(node, {op::Conv2D, op::FusedConv2D})) {
    return ConvFlops(Elements(node.output(0)), node.input(compute::conv2d::kFilters).shape());
  }
  if (node.Is(op::Conv2DBackpropInput)) {
    return ConvFlops(Elements(node.input(compute::conv2d_backprop_input::kDy)),
                     node.input(compute::conv2d_backprop_input::kFilters).shape());
  }
  if (IsOneOf(node, {op::Conv2DBackpropFilter, op::FusedConv2DBackpropFilter})) {
    return ConvFlops(Elements(node.input(compute::conv2d_backprop_filter::kDy)),
                     node.output(compute::conv2d_backprop_filter::kFilterGradient).shape());
  }
  // The pooled image has a quarter of the convolution's elements.
  if (node.Is(op::FusedConv2DReluMaxPool)) {
    return ConvFlops(4 * Elements(node.output(compute::conv_pool::kPooled)),
                     node.input(compute::conv_pool::kFilters).shape());
  }
  if (node.Is(op::FusedConv2DReluMaxPoolBackpropInput)) {
    return ConvFlops(4 * Elements(node.input(compute::conv_pool_backprop::kPooledGradient)),
                     node.input(compute::conv_pool_backprop::kFilters).shape());
  }
  if (node.Is(op::FusedConv2DReluMaxPoolBackpropFilter)) {
    return ConvFlops(4 * Elements(node.input(compute::conv_pool_backprop::kPooledGradient)),
                     node.output(compute::conv_pool_backprop::kFilterGradient).shape());
  }
  if (node.Is(op::Attention)) {
    namespace in = compute::attention;
    return AttentionFlops(node.input(in::kQ), node.input(in::kK), node.input(in::kKOffsets),
                          node.attrs().GetBool("causal"), 2);
  }
  if (node.Is(op::AttentionGrad)) {
    namespace in = compute::attention_grad;
    return AttentionFlops(node.input(in::kQ), node.input(in::kK), node.input(in::kKOffsets),
                          node.attrs().GetBool("causal"), 5);
  }
  if (node.Is(recommendation::op::NeuralFactorizationLoss)) {
    return LayerFlops(node, /*samples=*/Elements(node.input(0)), /*passes=*/3);
  }
  return 0;
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
    const int64_t bytes = BytesOf(*node);
    const double flops = FlopsOf(*node);
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
