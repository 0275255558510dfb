// The layers of the official Transformer over packed sentences, for training and for decoding token by token. Source:
// tensorflow/models official/transformer/model/ at d64bcfe3.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "official/transformer/model_params.h"
#include "utils/compute/graph/graph.h"

namespace official::transformer {

// Packed sentences.
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
  // True: weights of matrix products and biases are variables of type dtype instead of float32, and start as zeros.
  bool weights_are_given = false;
};

// The keys and values that attention reads: [T, hidden_size], or, in a cache, [C, S, hidden_size].
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
  // The residual stream of a stack of sublayers, each of which adds its output for the normalized stream to it. The end
  // of one sublayer and the start of the next are one op.
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
    compute::Value added_;
    int sublayers_ = 0;
  };

  // Returns the output of an attention sublayer of layer n for the input x [T, hidden_size]; its variables are under
  // `name`.
  using AttentionLayer = std::function<compute::Value(int64_t n, absl::string_view name, compute::Value x)>;
  // Returns the logits for the embedded targets.
  compute::Value DecodeStack(const Sentences& targets, const AttentionLayer& self_attention,
                             const AttentionLayer& encdec_attention);

  double Rate(double dropout) const { return options_.training ? dropout : 0; }
  double AttentionScale() const;
  compute::Value Variable(absl::string_view name, compute::Shape shape, const compute::Initializer& initializer);
  // Returns a variable in the type of the computation.
  compute::Value Weight(absl::string_view name, compute::Shape shape, const compute::Initializer& initializer);
  // Multiplies x [T, C] by a kernel: [T, units], without bias.
  compute::Value Project(absl::string_view name, compute::Value x, int64_t units);
  compute::Value Dense(absl::string_view name, compute::Value x, int64_t units);
  Sentences Embed(const Sentences& ids, compute::Value positions, bool shift_right, absl::string_view name);
  KeysAndValues ProjectKeysAndValues(absl::string_view name, compute::Value x);
  compute::Value Attend(absl::string_view name, const Sentences& queries, const KeysAndValues& keys,
                        compute::Value key_offsets, bool causal);
  compute::Value FeedForward(absl::string_view scope, compute::Value x, compute::Value offsets);

  const NetworkOptions options_;
  const ModelParams params_;
  compute::Value embedding_, positions_;
};

}  // namespace official::transformer
