#include "official/transformer/network.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/embedding/embedding.h"
#include "utils/compute/ops/layer_norm/layer_norm.h"
#include "utils/compute/ops/matmul/matmul.h"

namespace official::transformer {

using compute::DType;
using compute::Initializer;
using compute::Shape;
using compute::Tensor;
using compute::Value;

namespace {

constexpr char kScope[] = "model/Transformer/";

std::string LayerName(absl::string_view stack, int64_t n) { return absl::StrCat(stack, "/layer_", n); }

// The name of the attention to the encoder's output, after that of its layer.
constexpr char kEncDecAttention[] = "/encdec_attention/attention";

// The offsets of n sentences of one token each.
Tensor OneTokenOffsets(int64_t n) {
  Tensor offsets(DType::kInt32, {n + 1});
  for (int64_t i = 0; i <= n; ++i) offsets.data<int32_t>()[i] = static_cast<int32_t>(i);
  return offsets;
}

}  // namespace

Network::Network(const NetworkOptions& options, const ModelParams& params)
    : options_(options),
      params_(params),
      layers_(options.graph, options.dtype, {.scope = kScope, .weights_are_given = options.weights_are_given}) {
  const double stddev = 1 / std::sqrt(static_cast<double>(params.hidden_size));
  embedding_ = layers_.Weight("embedding_shared_weights/embedding_and_softmax/weights",
                              {params.vocab_size, params.hidden_size}, Initializer::Normal(stddev));
  positions_ = options.graph.Constant(compute::PositionSignal(options.max_length, params.hidden_size));
}

Sentences Network::Encode(const Sentences& ids) {
  const Value offsets = ids.offsets;
  Stack stack(*this, "encoder_stack", Embed(ids, positions_, /*shift_right=*/false, "encoder_stack"));
  for (int64_t n = 0; n < params_.num_hidden_layers; ++n) {
    const std::string layer = LayerName("encoder_stack", n), name = layer + "/self_attention/self_attention";
    const Value x = stack.Normalize(layer + "/self_attention");
    stack.Add(Attend(name, {x, offsets}, ProjectKeysAndValues(name, x), offsets, /*causal=*/false));
    stack.Add(FeedForward(layer + "/ffn", stack.Normalize(layer + "/ffn"), offsets));
  }
  return {stack.Normalize("encoder_stack"), offsets};
}

Value Network::Decode(const Sentences& targets, const Sentences& encoded) {
  const Value offsets = targets.offsets;
  return DecodeStack(
      Embed(targets, positions_, /*shift_right=*/true, "decoder_stack"),
      [&](int64_t, absl::string_view name, Value x) {
        return Attend(name, {x, offsets}, ProjectKeysAndValues(name, x), offsets, /*causal=*/true);
      },
      [&](int64_t, absl::string_view name, Value x) {
        return Attend(name, {x, offsets}, ProjectKeysAndValues(name, encoded.tokens), encoded.offsets,
                      /*causal=*/false);
      });
}

std::vector<KeysAndValues> Network::EncodedKeysAndValues(const Sentences& encoded) {
  std::vector<KeysAndValues> layers;
  for (int64_t n = 0; n < params_.num_hidden_layers; ++n) {
    layers.push_back(ProjectKeysAndValues(LayerName("decoder_stack", n) + kEncDecAttention, encoded.tokens));
  }
  return layers;
}

Value Network::Decode(const DecodeStep& step) {
  const int64_t rows = step.ids.shape().dim(0);
  const Value lengths = compute::BroadcastTo(step.position, {rows});
  // Each hypothesis is embedded as a sentence of one token, at the only position that is given.
  const Sentences newest = {step.ids, options_.graph.Constant(OneTokenOffsets(rows))};
  return DecodeStack(
      Embed(newest, compute::Gather(positions_, step.position), /*shift_right=*/false, "decoder_stack"),
      [&](int64_t n, absl::string_view name, Value x) {
        const Value q = Project(absl::StrCat(name, "/q"), x, params_.hidden_size);
        const auto [k, v] = ProjectKeysAndValues(name, x);
        const auto& [k_cache, v_cache] = step.cached[n];
        const Value attended = compute::DecodeAttention({q, k, v, k_cache, v_cache, step.cache_rows, lengths},
                                                        static_cast<int>(params_.num_heads), AttentionScale());
        return Project(absl::StrCat(name, "/output_transform"), attended, params_.hidden_size);
      },
      [&](int64_t n, absl::string_view name, Value x) {
        return Attend(name, {x, step.query_offsets}, step.encoded[n], step.key_offsets, /*causal=*/false);
      });
}

Value Network::DecodeStack(const Sentences& targets, const AttentionLayer& self_attention,
                           const AttentionLayer& encdec_attention) {
  Stack stack(*this, "decoder_stack", targets);
  for (int64_t n = 0; n < params_.num_hidden_layers; ++n) {
    const std::string layer = LayerName("decoder_stack", n);
    stack.Add(self_attention(n, layer + "/self_attention/self_attention", stack.Normalize(layer + "/self_attention")));
    stack.Add(encdec_attention(n, layer + kEncDecAttention, stack.Normalize(layer + "/encdec_attention")));
    stack.Add(FeedForward(layer + "/ffn", stack.Normalize(layer + "/ffn"), targets.offsets));
  }
  return compute::MatMul(stack.Normalize("decoder_stack"), embedding_, {.transpose_b = true});
}

Value Network::Stack::Normalize(absl::string_view scope) {
  const ModelParams& params = network_.params_;
  const std::string layer = absl::StrCat(scope, "/layer_normalization/");
  const Value gamma = network_.layers_.Variable(layer + "layer_norm_scale", {params.hidden_size}, Initializer::Ones());
  const Value beta = network_.layers_.Variable(layer + "layer_norm_bias", {params.hidden_size}, Initializer::Zeros());
  if (!added_) return compute::LayerNorm(stream_.tokens, gamma, beta);
  const std::string name = absl::StrCat(name_, "/", ++sublayers_);
  const compute::ResidualLayerNormOutputs out =
      compute::ResidualLayerNorm({stream_.tokens, added_, gamma, beta, stream_.offsets, network_.options_.random_state},
                                 {.dropout_rate = network_.Rate(params.layer_postprocess_dropout), .name = name});
  stream_.tokens = out.sum;
  added_ = Value();
  return out.normalized;
}

double Network::AttentionScale() const {
  return 1 / std::sqrt(static_cast<double>(params_.hidden_size) / static_cast<double>(params_.num_heads));
}

Value Network::Project(absl::string_view name, Value x, int64_t units) {
  // Upstream's variance_scaling_initializer(initializer_gain, mode="fan_avg", distribution="uniform").
  const auto initializer = [this](const Shape& shape) {
    Initializer scaled = Initializer::GlorotUniform(shape);
    scaled.value *= std::sqrt(params_.initializer_gain);
    return scaled;
  };
  return layers_.Dense(x, units, {.name = name, .use_bias = false, .kernel_initializer = initializer});
}

Value Network::Dense(absl::string_view name, Value x, int64_t units) {
  const Value y = Project(name, x, units);
  return compute::BiasAdd(y, layers_.Weight(absl::StrCat(name, "/bias"), {units}, Initializer::Zeros()));
}

Sentences Network::Embed(const Sentences& ids, Value positions, bool shift_right, absl::string_view name) {
  const Value rows = compute::Embedding({embedding_, ids.tokens, positions, ids.offsets, options_.random_state},
                                        {.scale = std::sqrt(static_cast<double>(params_.hidden_size)),
                                         .shift_right = shift_right,
                                         .dropout_rate = Rate(params_.layer_postprocess_dropout),
                                         .name = name});
  return {rows, ids.offsets};
}

KeysAndValues Network::ProjectKeysAndValues(absl::string_view name, Value x) {
  return {Project(absl::StrCat(name, "/k"), x, params_.hidden_size),
          Project(absl::StrCat(name, "/v"), x, params_.hidden_size)};
}

Value Network::Attend(absl::string_view name, const Sentences& x, const KeysAndValues& keys, Value key_offsets,
                      bool causal) {
  const Value q = Project(absl::StrCat(name, "/q"), x.tokens, params_.hidden_size);
  const Value attended = compute::Attention({q, keys.keys, keys.values, x.offsets, key_offsets, options_.random_state},
                                            {.num_heads = static_cast<int>(params_.num_heads),
                                             .causal = causal,
                                             .scale = AttentionScale(),
                                             .dropout_rate = Rate(params_.attention_dropout),
                                             .name = name});
  return Project(absl::StrCat(name, "/output_transform"), attended, params_.hidden_size);
}

Value Network::FeedForward(absl::string_view scope, Value x, Value offsets) {
  const std::string name = absl::StrCat(scope, "/feed_foward_network");  // as upstream spells it
  Value y = compute::Relu(Dense(absl::StrCat(name, "/filter_layer"), x, params_.filter_size));
  const double rate = Rate(params_.relu_dropout);
  if (rate > 0) y = compute::PackedDropout(y, offsets, rate, options_.random_state, name);
  return Dense(absl::StrCat(name, "/output_layer"), y, params_.hidden_size);
}

}  // namespace official::transformer
