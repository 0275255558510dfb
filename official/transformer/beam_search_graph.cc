// B sentences, S ids of the longest, K hypotheses of each, H hidden_size, L tokens of a hypothesis so far.
#include "official/transformer/beam_search_graph.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/transformer/text/reserved_ids.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;
using exporting::TfOps;
using Node = TfOps::Node;
using Nodes = TfOps::Nodes;

constexpr float kInf = 1e7f;  // upstream's infinity
constexpr float kOfPadding = -1e9f;

// [B, heads, S, size of a head]
struct HeadKeysAndValues {
  Node keys, values;
};

// The layers of network.h, of rows [N, H].
class Layers {
 public:
  Layers(const ModelParams& params, TfOps& tf) : params_(params), tf_(tf) {}

  // Scaled embeddings of ids [N].
  Node Embed(const Node& ids) {
    const Node known = tf_.Cast(tf_.Op("NotEqual", {ids, tf_.Int(0)}, {}, DType::kBool), DType::kFloat32);
    const Node scale = tf_.Float(std::sqrt(static_cast<float>(params_.hidden_size)));
    return tf_.Mul(tf_.Gather(Embedding(), ids), tf_.ExpandDims(tf_.Mul(known, scale), 1));
  }
  // What is added to them at positions int32 [N].
  Node Positions(const Node& positions) {
    const int64_t frequencies = params_.hidden_size / 2;
    Tensor inverse(DType::kFloat32, {frequencies});
    const auto step = static_cast<float>(-std::log(1e4) / static_cast<double>(frequencies - 1));
    for (int64_t i = 0; i < frequencies; ++i) inverse.data<float>()[i] = std::exp(static_cast<float>(i) * step);
    const Node angles = tf_.Mul(tf_.ExpandDims(tf_.Cast(positions, DType::kFloat32), 1), tf_.Const(inverse));
    return tf_.Concat({tf_.Op("Sin", {angles}), tf_.Op("Cos", {angles})}, 1);
  }
  // The logarithms of the probabilities of all ids [N, vocab_size].
  Node LogProbs(const Node& x) { return tf_.Op("LogSoftmax", {tf_.MatMul(x, Embedding(), /*transpose_b=*/true)}); }

  Node Normalize(const std::string& scope, const Node& x) {
    const Node mean = tf_.Reduce("Mean", x, -1, /*keep_dims=*/true);
    const Node variance = tf_.Reduce("Mean", tf_.Op("SquaredDifference", {x, mean}), -1, /*keep_dims=*/true);
    const Node scale = tf_.Op("Rsqrt", {tf_.Add(variance, tf_.Float(1e-6f))});
    const std::string layer = absl::StrCat(scope, "/layer_normalization/layer_norm_");
    const Node normalized = tf_.Mul(tf_.Sub(x, mean), scale);
    return tf_.Add(tf_.Mul(normalized, Weight(layer + "scale", {params_.hidden_size})),
                   Weight(layer + "bias", {params_.hidden_size}));
  }
  Node FeedForward(const std::string& scope, const Node& x) {
    const std::string name = absl::StrCat(scope, "/feed_foward_network");  // as upstream spells it
    const int64_t hidden = params_.hidden_size, filter = params_.filter_size;
    const auto dense = [&](const std::string& layer, const Node& y, int64_t in, int64_t out) {
      return tf_.Op("BiasAdd", {tf_.MatMul(y, Weight(layer + "/kernel", {in, out})), Weight(layer + "/bias", {out})});
    };
    const Node y = tf_.Op("Relu", {dense(name + "/filter_layer", x, hidden, filter)});
    return dense(name + "/output_layer", y, filter, hidden);
  }
  // The rows [N, H], as many of each of `sequences`, times a kernel: [sequences, heads, N / sequences, size of a head].
  Node ProjectHeads(const std::string& name, const Node& x, const Node& sequences) {
    const Node split = tf_.Reshape(Project(name, x), {sequences, -1, params_.num_heads, HeadSize()});
    return tf_.Transpose(split, {0, 2, 1, 3});
  }
  HeadKeysAndValues ProjectKeysAndValues(const std::string& name, const Node& x, const Node& sequences) {
    return {ProjectHeads(name + "/k", x, sequences), ProjectHeads(name + "/v", x, sequences)};
  }
  // From the rows [N, H] of `sequences`; `bias`, if there is one, is added to the scores.
  Node Attend(const std::string& name, const Node& x, const Node& sequences, const HeadKeysAndValues& to,
              const Node* bias) {
    const Node scale = tf_.Float(1 / std::sqrt(static_cast<float>(HeadSize())));
    const Node queries = tf_.Mul(ProjectHeads(name + "/q", x, sequences), scale);
    Node scores = tf_.Op("BatchMatMul", {queries, to.keys}, {{"adj_y", exporting::BoolAttr(true)}});
    if (bias != nullptr) scores = tf_.Add(scores, *bias);
    const Node attended = tf_.Op("BatchMatMul", {tf_.OfRows("Softmax", scores), to.values});
    const Node merged = tf_.Reshape(tf_.Transpose(attended, {0, 2, 1, 3}), {-1, params_.hidden_size});
    return Project(name + "/output_transform", merged);
  }

 private:
  int64_t HeadSize() const { return params_.hidden_size / params_.num_heads; }
  Node Weight(const std::string& name, compute::Shape shape) {
    return tf_.Variable(absl::StrCat("model/Transformer/", name), {DType::kFloat32, std::move(shape)});
  }
  Node Embedding() {
    return Weight("embedding_shared_weights/embedding_and_softmax/weights", {params_.vocab_size, params_.hidden_size});
  }
  Node Project(const std::string& name, const Node& x) {
    return tf_.MatMul(x, Weight(name + "/kernel", {params_.hidden_size, params_.hidden_size}));
  }

  const ModelParams params_;
  TfOps& tf_;
};

// What the decoder attends to.
struct Encoded {
  std::vector<HeadKeysAndValues> layers;
  Node bias;  // [B, 1, 1, S]
};

Encoded Encode(const Node& sentences, const Node& batch, const ModelParams& params, Layers& layers, TfOps& tf) {
  const Node length = tf.Dim(sentences, 1);
  const Node ids = tf.Reshape(tf.Cast(sentences, DType::kInt32), {-1});
  const Node padding = tf.Cast(tf.Op("Equal", {ids, tf.Int(0)}, {}, DType::kBool), DType::kFloat32);
  const Node kept = tf.ExpandDims(tf.Sub(tf.Float(1), padding), 1);
  Encoded encoded;
  encoded.bias = tf.Reshape(tf.Mul(padding, tf.Float(kOfPadding)), {batch, 1, 1, length});

  const Node embedded = tf.Reshape(layers.Embed(ids), {batch, length, params.hidden_size});
  Node x = tf.Reshape(tf.Add(embedded, layers.Positions(tf.Range(length))), {-1, params.hidden_size});
  for (int64_t n = 0; n < params.num_hidden_layers; ++n) {
    const std::string layer = absl::StrCat("encoder_stack/layer_", n), name = layer + "/self_attention/self_attention";
    const Node y = layers.Normalize(layer + "/self_attention", x);
    const HeadKeysAndValues own = layers.ProjectKeysAndValues(name, y, batch);
    x = tf.Add(x, layers.Attend(name, y, batch, own, &encoded.bias));
    x = tf.Add(x, tf.Mul(layers.FeedForward(layer + "/ffn", layers.Normalize(layer + "/ffn", x)), kept));
  }
  x = layers.Normalize("encoder_stack", x);
  for (int64_t n = 0; n < params.num_hidden_layers; ++n) {
    const std::string name = absl::StrCat("decoder_stack/layer_", n, "/encdec_attention/attention");
    encoded.layers.push_back(layers.ProjectKeysAndValues(name, x, batch));
  }
  return encoded;
}

// What a step of the search goes on from.
struct State {
  Node position;                          // L - 1, where the newest token is
  Node alive_ids, finished_ids;           // int32 [B, K, L], 0 in front
  Node alive_log_probs, finished_scores;  // [B, K]
  Node finished;                          // bool [B, K]: false for places that are still free
  std::vector<HeadKeysAndValues> cached;  // of each layer [B * K, heads, L - 1, size of a head]

  Nodes ToNodes() const {
    Nodes nodes = {position, alive_ids, finished_ids, alive_log_probs, finished_scores, finished};
    for (const HeadKeysAndValues& layer : cached) nodes.insert(nodes.end(), {layer.keys, layer.values});
    return nodes;
  }
  static State FromNodes(const Nodes& nodes) {
    State state{nodes[0], nodes[1], nodes[2], nodes[3], nodes[4], nodes[5], {}};
    for (size_t i = 6; i < nodes.size(); i += 2) state.cached.push_back({nodes[i], nodes[i + 1]});
    return state;
  }
};

// sequence_beam_search of upstream's beam_search.py.
class Search {
 public:
  Search(const Node& sentences, const ModelParams& params, TfOps& tf)
      : params_(params),
        beam_(params.beam_size),
        tf_(tf),
        layers_(params, tf),
        batch_(tf.Dim(sentences, 0)),
        hypotheses_(tf.Mul(batch_, tf.Int(Int(beam_)))),
        max_length_(tf.Add(tf.Dim(sentences, 1), tf.Int(Int(params.extra_decode_length)))),
        encoded_(Encode(sentences, batch_, params, layers_, tf)) {}

  State Start() {
    const Node zeros = tf_.Fill(tf_.Int(0), {batch_, beam_, 1}), scores = tf_.Fill(tf_.Float(-kInf), {batch_, beam_});
    // Only one of the hypotheses, which are equal, is possible.
    const Node possible = tf_.Fill(tf_.Float(0), {batch_, 1});
    const Node others = tf_.Fill(tf_.Float(-std::numeric_limits<float>::infinity()), {batch_, beam_ - 1});
    const Node no_keys =
        tf_.Fill(tf_.Float(0), {hypotheses_, params_.num_heads, 0, params_.hidden_size / params_.num_heads});
    const Node unfinished = tf_.Fill(tf_.Const(Tensor::Scalar(false)), {batch_, beam_});
    State state{tf_.Int(0), zeros, zeros, tf_.Concat({possible, others}, 1), scores, unfinished, {}};
    state.cached.assign(params_.num_hidden_layers, {no_keys, no_keys});
    return state;
  }

  // Whether a sentence could still get a better translation.
  Node GoesOn(const State& state) {
    const Node possible = tf_.Op("RealDiv", {First(state.alive_log_probs), LengthPenalty(max_length_)});
    const Node scores = tf_.Mul(state.finished_scores, tf_.Cast(state.finished, DType::kFloat32));
    const Node none = tf_.OpWith("LogicalNot", {tf_.Reduce("Any", state.finished, 1)}, {}, DType::kBool);
    const Node worst = tf_.Add(tf_.Reduce("Min", scores, 1), MinusInfinityIf(none));
    const Node done = tf_.Reduce("All", tf_.Op("Greater", {worst, possible}, {}, DType::kBool), 0);
    const Node in_time = tf_.Op("Less", {state.position, max_length_}, {}, DType::kBool);
    return tf_.OpWith("LogicalAnd", {in_time, tf_.OpWith("LogicalNot", {done}, {}, DType::kBool)}, {}, DType::kBool);
  }

  State Step(State state) {
    const Node newest = tf_.Reshape(Slice(state.alive_ids, {0, 0, -1}, /*begin_mask=*/3, /*shrink_axis_mask=*/4), {-1});
    const Node before = tf_.Reshape(state.alive_log_probs, {-1, 1});
    const Node log_probs = tf_.Add(layers_.LogProbs(Decode(newest, state)), before);  // [B * K, vocab_size]

    // The best 2 K continuations: among them are K without EOS.
    const int64_t grown = 2 * beam_;
    const auto [best, places] = tf_.TopK(tf_.Reshape(log_probs, {batch_, beam_ * params_.vocab_size}), Int(grown));
    const Node vocab_size = tf_.Int(Int(params_.vocab_size));
    const Node parents = RowsOf(tf_.Op("FloorDiv", {places, vocab_size}), beam_);  // [B * 2 K]
    const Node ids = tf_.Op("FloorMod", {places, vocab_size});
    const Node is_eos = tf_.Op("Equal", {ids, tf_.Int(kEosId)}, {}, DType::kBool);
    const Node longer = tf_.Concat({tf_.Gather(AsRows(state.alive_ids, beam_), parents), tf_.Reshape(ids, {-1, 1})}, 1);
    state.position = tf_.Add(state.position, tf_.Int(1));

    const auto [alive, alive_places] = tf_.TopK(tf_.Add(best, MinusInfinityIf(is_eos)), Int(beam_));
    const Node alive_rows = RowsOf(alive_places, grown), alive_parents = tf_.Gather(parents, alive_rows);
    state.alive_log_probs = alive;
    state.alive_ids = OfSentences(tf_.Gather(longer, alive_rows), beam_);
    for (HeadKeysAndValues& layer : state.cached) {
      layer = {tf_.Gather(layer.keys, alive_parents), tf_.Gather(layer.values, alive_parents)};
    }

    const Node not_eos = tf_.OpWith("LogicalNot", {is_eos}, {}, DType::kBool);
    const Node scores = tf_.Add(tf_.Op("RealDiv", {best, LengthPenalty(state.position)}), MinusInfinityIf(not_eos));
    const Node padded = tf_.Concat({state.finished_ids, tf_.Fill(tf_.Int(0), {batch_, beam_, 1})}, 2);
    const int64_t candidates = beam_ + grown;
    const auto [finished_scores, finished_places] =
        tf_.TopK(tf_.Concat({state.finished_scores, scores}, 1), Int(beam_));
    const Node finished_rows = RowsOf(finished_places, candidates);
    const Node all_ids = tf_.Concat({padded, OfSentences(longer, grown)}, 1);
    const Node all_finished = tf_.Reshape(tf_.Concat({state.finished, is_eos}, 1), {-1});
    state.finished_scores = finished_scores;
    state.finished_ids = OfSentences(tf_.Gather(AsRows(all_ids, candidates), finished_rows), beam_);
    state.finished = tf_.Reshape(tf_.Gather(all_finished, finished_rows), {batch_, beam_});
    return state;
  }

  // Of the finished hypotheses, or of the others where there is none.
  TranslationNodes Result(const State& state) {
    const Node any = tf_.Reduce("Any", state.finished, 1);
    const auto select = [&](const Node& x, const Node& y) {
      return tf_.OpWith("Select", {any, x, y}, {{"T", exporting::TypeAttr(x.dtype)}}, x.dtype);
    };
    const Node ids = select(state.finished_ids, state.alive_ids);
    return {Slice(ids, {0, 0, 1}, /*begin_mask=*/1, /*shrink_axis_mask=*/2),
            First(select(state.finished_scores, state.alive_log_probs))};
  }

 private:
  static int32_t Int(int64_t value) { return static_cast<int32_t>(value); }

  // What the decoder makes of the newest ids [B * K]; adds to the caches.
  Node Decode(const Node& ids, State& state) {
    Node x = tf_.Add(layers_.Embed(ids), layers_.Positions(tf_.Reshape(state.position, {1})));
    for (int64_t n = 0; n < params_.num_hidden_layers; ++n) {
      const std::string layer = absl::StrCat("decoder_stack/layer_", n);
      const std::string name = layer + "/self_attention/self_attention";
      Node y = layers_.Normalize(layer + "/self_attention", x);
      const HeadKeysAndValues own = layers_.ProjectKeysAndValues(name, y, hypotheses_);
      HeadKeysAndValues& cached = state.cached[n];
      cached = {tf_.Concat({cached.keys, own.keys}, 2), tf_.Concat({cached.values, own.values}, 2)};
      x = tf_.Add(x, layers_.Attend(name, y, hypotheses_, cached, nullptr));
      // The hypotheses of a sentence are queries to one set of keys.
      y = layers_.Normalize(layer + "/encdec_attention", x);
      x = tf_.Add(x,
                  layers_.Attend(layer + "/encdec_attention/attention", y, batch_, encoded_.layers[n], &encoded_.bias));
      x = tf_.Add(x, layers_.FeedForward(layer + "/ffn", layers_.Normalize(layer + "/ffn", x)));
    }
    return layers_.Normalize("decoder_stack", x);
  }

  Node LengthPenalty(const Node& length) {
    const Node sum = tf_.Add(tf_.Cast(length, DType::kFloat32), tf_.Float(5));
    return tf_.Op("Pow", {tf_.Op("RealDiv", {sum, tf_.Float(6)}), tf_.Float(static_cast<float>(params_.alpha))});
  }
  Node MinusInfinityIf(const Node& condition) {
    return tf_.Mul(tf_.Cast(condition, DType::kFloat32), tf_.Float(-kInf));
  }
  // x[begin:], with dimensions from their beginning or of one element where a mask says so.
  Node Slice(const Node& x, std::vector<int32_t> begin, int64_t begin_mask, int64_t shrink_axis_mask) {
    const std::vector<int32_t> ones(begin.size(), 1), zeros(begin.size(), 0);
    return tf_.Op("StridedSlice", {x, tf_.Ints(std::move(begin)), tf_.Ints(zeros), tf_.Ints(ones)},
                  {{"Index", exporting::TypeAttr(DType::kInt32)},
                   {"begin_mask", exporting::IntAttr(begin_mask)},
                   {"end_mask", exporting::IntAttr((int64_t{1} << ones.size()) - 1)},
                   {"shrink_axis_mask", exporting::IntAttr(shrink_axis_mask)}});
  }
  // Of each sentence: [B, K] -> [B].
  Node First(const Node& x) { return Slice(x, {0, 0}, /*begin_mask=*/1, /*shrink_axis_mask=*/2); }
  // Positions [B, m] among the n candidates of each sentence, as rows among those of all: [B * m].
  Node RowsOf(const Node& positions, int64_t n) {
    const Node first = tf_.Mul(tf_.Range(batch_), tf_.Int(Int(n)));
    return tf_.Reshape(tf_.Add(positions, tf_.ExpandDims(first, 1)), {-1});
  }
  // [B, n, L] -> [B * n, L] and back.
  Node AsRows(const Node& x, int64_t n) { return tf_.Reshape(x, {tf_.Mul(batch_, tf_.Int(Int(n))), -1}); }
  Node OfSentences(const Node& x, int64_t n) { return tf_.Reshape(x, {batch_, n, -1}); }

  const ModelParams params_;
  const int64_t beam_;
  TfOps& tf_;
  Layers layers_;
  const Node batch_, hypotheses_, max_length_;
  const Encoded encoded_;
};

}  // namespace

TranslationNodes AddTranslation(const Node& sentences, const ModelParams& params, TfOps& tf) {
  Search search(sentences, params, tf);
  const Nodes last = tf.While(
      search.Start().ToNodes(), [&](const Nodes& nodes) { return search.GoesOn(State::FromNodes(nodes)); },
      [&](const Nodes& nodes) { return search.Step(State::FromNodes(nodes)).ToNodes(); });
  return search.Result(State::FromNodes(last));
}

}  // namespace official::transformer
