// The network of the official Transformer over packed sentences, for training and for decoding token by token. Source:
// tensorflow/models official/transformer/model/ at d64bcfe3.
//
// B is the number of sentences, T that of their tokens, U that of the targets' tokens, R that of hypotheses.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "official/transformer/model_params.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/layers/layers.h"

namespace official::transformer {

// Sentences packed one after the other. Tokens from offsets[B] on are padding.
struct Sentences {
  compute::Value tokens;   // ids int32 [T], or the layers' values for them, [T, hidden_size]
  compute::Value offsets;  // int32 [B + 1]: sentence b has tokens [offsets[b], offsets[b + 1])
};

struct NetworkOptions {
  compute::Graph& graph;
  compute::DType dtype = compute::DType::kFloat32;  // type of the computation
  int64_t max_length = 0;                           // most tokens of a sentence
  bool training = false;                            // true: with dropout, from random_state
  compute::Value random_state = {};
  bool weights_are_given = false;  // as in compute::LayersOptions
};

// The keys and values that attention reads: [T, hidden_size], or, in a cache, [rows, positions, hidden_size].
struct KeysAndValues {
  compute::Value keys, values;
};

// The inputs of a decoding step, which gives R hypotheses of the same length their next token.
struct DecodeStep {
  compute::Value ids;         // int32 [R]: the newest token of each; at position 0 it is 0
  compute::Value position;    // int32 [1]: the position of the newest tokens
  compute::Value cache_rows;  // int32 [R, max_length]: the cache rows of the earlier tokens, as for DecodeAttention
  // int32 [B + 1]: hypotheses [query_offsets[b], query_offsets[b + 1]) translate sentence b, which has the rows
  // [key_offsets[b], key_offsets[b + 1]) of `encoded`.
  compute::Value query_offsets, key_offsets;
  std::vector<KeysAndValues> cached;   // variables of each layer
  std::vector<KeysAndValues> encoded;  // for each layer, from EncodedKeysAndValues
};

class Network {
 public:
  Network(const NetworkOptions& options, const ModelParams& params);

  // Returns the encoder's output, which the decoder attends to.
  Sentences Encode(const Sentences& ids);
  // Returns the logits [U, vocab_size] of each target, computed from the targets before it.
  compute::Value Decode(const Sentences& targets, const Sentences& encoded);

  // Returns the keys and values that the decoder's layers attend to.
  std::vector<KeysAndValues> EncodedKeysAndValues(const Sentences& encoded);
  // Returns the logits [R, vocab_size] of the next tokens. Writes keys and values of the newest tokens to the caches.
  compute::Value Decode(const DecodeStep& step);

 private:
  // The residual stream x of a stack of sublayers, each of which makes it x + dropout(sublayer(layer_norm(x))):
  // Normalize returns the input of a sublayer, Add takes its output. What was added waits for the next Normalize, which
  // computes the sum and normalizes it in one op.
  class Stack {
   public:
    Stack(Network& network, absl::string_view name, const Sentences& start)
        : network_(network), name_(name), stream_(start) {}

    // Returns the normalized stream; its variables are <scope>/layer_normalization/layer_norm_scale and _bias.
    compute::Value Normalize(absl::string_view scope);
    void Add(compute::Value sublayer) { added_ = sublayer; }

   private:
    Network& network_;
    const std::string name_;
    Sentences stream_;
    compute::Value added_;  // the output of the newest sublayer, until it is part of the stream
    int sublayers_ = 0;     // in the stream: the number in the name of a dropout
  };

  // Returns the output of an attention sublayer of layer n for the input x [T, hidden_size]; its variables are under
  // `name`.
  using AttentionLayer = std::function<compute::Value(int64_t n, absl::string_view name, compute::Value x)>;
  // Returns the logits for the embedded targets.
  compute::Value DecodeStack(const Sentences& targets, const AttentionLayer& self_attention,
                             const AttentionLayer& encdec_attention);

  // Returns the dropout rate for this mode.
  double Rate(double dropout) const { return options_.training ? dropout : 0; }
  double AttentionScale() const;
  // The dense layer `name` without bias: x [T, C] -> [T, units].
  compute::Value Project(absl::string_view name, compute::Value x, int64_t units);
  // The same with bias.
  compute::Value Dense(absl::string_view name, compute::Value x, int64_t units);
  // Returns the embedded tokens plus `positions` [length, hidden_size], with dropout. shift_right: each token gets the
  // embedding of the one before it, so that a target is computed from those before it.
  Sentences Embed(const Sentences& ids, compute::Value positions, bool shift_right, absl::string_view name);
  KeysAndValues ProjectKeysAndValues(absl::string_view name, compute::Value x);
  // Returns the output of the attention `name`, [T, hidden_size], of the sentences `x` of normalized tokens over the
  // keys and values of sentences with key_offsets.
  compute::Value Attend(absl::string_view name, const Sentences& x, const KeysAndValues& keys,
                        compute::Value key_offsets, bool causal);
  compute::Value FeedForward(absl::string_view scope, compute::Value x, compute::Value offsets);

  const NetworkOptions options_;
  const ModelParams params_;
  compute::Layers layers_;
  compute::Value embedding_;  // [vocab_size, hidden_size]: for the ids, and transposed for the logits
  compute::Value positions_;  // [max_length, hidden_size]: added to the embedded ids
};

}  // namespace official::transformer
