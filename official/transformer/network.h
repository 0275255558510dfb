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
  compute::Value tokens;   // ids int32 [T], or what the layers make of them, [T, hidden_size]
  compute::Value offsets;  // int32 [B + 1]: sentence b has tokens [offsets[b], offsets[b + 1])
};

struct NetworkOptions {
  compute::Graph& graph;
  compute::DType dtype = compute::DType::kFloat32;  // of the computation
  int64_t max_length = 0;                           // tokens of a sentence
  bool training = false;                            // with dropout, from random_state
  compute::Value random_state = {};
  // Weights that are products' factors and biases are variables of type dtype and not float32; they start as zeros.
  bool weights_are_given = false;
};

// What attention reads: [T, hidden_size], or, of a cache, [C, S, hidden_size].
struct KeysAndValues {
  compute::Value keys, values;
};

// The step of decoding that gives R hypotheses their next token; all have as many tokens.
struct DecodeStep {
  compute::Value ids;         // int32 [R]: the newest token of each; at position 0 it is 0
  compute::Value position;    // int32 [1]: where that is
  compute::Value cache_rows;  // int32 [R, max_length]: where the earlier tokens are, as for DecodeAttention
  // int32 [B + 1]: hypotheses [query_offsets[b], query_offsets[b + 1]) translate sentence b, which has the rows
  // [key_offsets[b], key_offsets[b + 1]) of `encoded`.
  compute::Value query_offsets, key_offsets;
  std::vector<KeysAndValues> cached;   // variables of each layer
  std::vector<KeysAndValues> encoded;  // of each layer: what EncodedKeysAndValues gives
};

class Network {
 public:
  Network(const NetworkOptions& options, const ModelParams& params);

  // What the decoder attends to.
  Sentences Encode(const Sentences& ids);
  // Logits [U, vocab_size] of each target from the targets before its own.
  compute::Value Decode(const Sentences& targets, const Sentences& encoded);

  // What the decoder's layers attend to.
  std::vector<KeysAndValues> EncodedKeysAndValues(const Sentences& encoded);
  // Logits [R, vocab_size] of the tokens that follow. Writes keys and values of the newest tokens to the caches.
  compute::Value Decode(const DecodeStep& step);

 private:
  // The residual stream of a stack of sublayers, each of which adds to it what it makes of its normalized value. The
  // end of one sublayer and the start of the next are one op.
  class Stack {
   public:
    Stack(Network& network, absl::string_view name, const Sentences& start)
        : network_(network), name_(name), stream_(start) {}

    // The normalized stream; variables <scope>/layer_normalization/layer_norm_scale and _bias.
    compute::Value Normalize(absl::string_view scope);
    void Add(compute::Value sublayer) { added_ = sublayer; }

   private:
    Network& network_;
    const std::string name_;
    Sentences stream_;
    compute::Value added_;
    int sublayers_ = 0;
  };

  // What a sublayer makes of its input [T, hidden_size]: attention of layer n, whose variables are under `name`.
  using AttentionLayer = std::function<compute::Value(int64_t n, absl::string_view name, compute::Value x)>;
  // From the embedded targets to the logits.
  compute::Value DecodeStack(const Sentences& targets, const AttentionLayer& self_attention,
                             const AttentionLayer& encdec_attention);

  double Rate(double dropout) const { return options_.training ? dropout : 0; }
  double AttentionScale() const;
  compute::Value Variable(absl::string_view name, compute::Shape shape, const compute::Initializer& initializer);
  // In the type of the computation.
  compute::Value Weight(absl::string_view name, compute::Shape shape, const compute::Initializer& initializer);
  // x [T, C] -> [T, units], without bias.
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
