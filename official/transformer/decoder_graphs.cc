#include "official/transformer/decoder_graphs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Graph;
using compute::Value;

std::vector<KeysAndValues> Variables(Graph& graph, const ModelParams& params, absl::string_view what,
                                     const compute::TensorType& type) {
  std::vector<KeysAndValues> layers;
  for (int64_t n = 0; n < params.num_hidden_layers; ++n) {
    layers.push_back({graph.Variable({absl::StrCat("decode/", what, "_keys_", n), type, {}, false}),
                      graph.Variable({absl::StrCat("decode/", what, "_values_", n), type, {}, false})});
  }
  return layers;
}

}  // namespace

std::vector<KeysAndValues> CachedVariables(Graph& graph, const ModelParams& params, DType dtype,
                                           const DecoderCapacity& capacity) {
  return Variables(graph, params, "cached", {dtype, {capacity.rows, capacity.positions, params.hidden_size}});
}

std::vector<KeysAndValues> EncodedVariables(Graph& graph, const ModelParams& params, DType dtype,
                                            const DecoderCapacity& capacity) {
  return Variables(graph, params, "encoded", {dtype, {capacity.tokens, params.hidden_size}});
}

DecoderGraph EncodeGraph(const ModelParams& params, DType dtype, const DecoderCapacity& capacity, int64_t tokens,
                         int64_t sentences) {
  DecoderGraph built;
  Graph& graph = *built.graph;
  Network network({.graph = graph, .dtype = dtype, .max_length = capacity.positions, .weights_are_given = true},
                  params);
  const Sentences ids = {graph.Input("ids", {DType::kInt32, {tokens}}),
                         graph.Input("offsets", {DType::kInt32, {sentences + 1}})};
  built.roots.feeds = {ids.tokens, ids.offsets};
  for (const KeysAndValues& layer : network.EncodedKeysAndValues(network.Encode(ids))) {
    built.roots.fetches.push_back(layer.keys);
    built.roots.fetches.push_back(layer.values);
  }
  return built;
}

DecoderGraph StepGraph(const ModelParams& params, DType dtype, const DecoderCapacity& capacity, int64_t sentences,
                       int64_t rows) {
  DecoderGraph built;
  Graph& graph = *built.graph;
  Network network({.graph = graph, .dtype = dtype, .max_length = capacity.positions, .weights_are_given = true},
                  params);
  const DecodeStep step = {
      .ids = graph.Input("ids", {DType::kInt32, {rows}}),
      .position = graph.Input("position", {DType::kInt32, {1}}),
      .cache_rows = graph.Input("cache_rows", {DType::kInt32, {rows, capacity.positions}}),
      .query_offsets = graph.Input("query_offsets", {DType::kInt32, {sentences + 1}}),
      .key_offsets = graph.Input("key_offsets", {DType::kInt32, {sentences + 1}}),
      .cached = CachedVariables(graph, params, dtype, capacity),
      .encoded = EncodedVariables(graph, params, dtype, capacity),
  };
  const Value log_probs_before = graph.Input("log_probs", {DType::kFloat32, {rows, 1}});
  const Value logits = network.Decode(step);
  const int k = static_cast<int>(std::min(2 * params.beam_size, params.vocab_size));
  const auto [best_logits, best_ids] = compute::TopK(logits, k);
  // Of the best only, so that no log probabilities of all ids are written.
  const Value log_probs =
      compute::Sub(compute::Cast(best_logits, DType::kFloat32), compute::ExpandDims(compute::LogSumExp(logits), 1));
  built.roots = {{step.ids, step.position, step.cache_rows, step.query_offsets, step.key_offsets, log_probs_before},
                 {compute::Add(log_probs, log_probs_before), best_ids},
                 {}};
  return built;
}

}  // namespace official::transformer
