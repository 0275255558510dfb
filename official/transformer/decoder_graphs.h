// The graphs that translation computes: the encoder, and a step of the decoder that gives hypotheses their next token.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "official/transformer/model_params.h"
#include "official/transformer/network.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"

namespace official::transformer {

// The capacity of the variables that hold what was encoded and decoded.
struct DecoderCapacity {
  int64_t tokens = 0;     // tokens of all sentences of a batch
  int64_t rows = 0;       // hypotheses of all sentences
  int64_t positions = 0;  // tokens of a hypothesis, and of a sentence
  bool Holds(const DecoderCapacity& other) const {
    return tokens >= other.tokens && rows >= other.rows && positions >= other.positions;
  }
  friend bool operator==(const DecoderCapacity&, const DecoderCapacity&) = default;
};

struct DecoderGraph {
  std::unique_ptr<compute::Graph> graph = std::make_unique<compute::Graph>();
  compute::GraphRoots roots;
};

// Returns the variables of each layer with the keys and values of decoded tokens.
std::vector<KeysAndValues> CachedVariables(compute::Graph& graph, const ModelParams& params, compute::DType dtype,
                                           const DecoderCapacity& capacity);
// Returns the variables of each layer with the keys and values of the sentences.
std::vector<KeysAndValues> EncodedVariables(compute::Graph& graph, const ModelParams& params, compute::DType dtype,
                                            const DecoderCapacity& capacity);

// Feeds: ids int32 [tokens], offsets int32 [sentences + 1], of sentences of at most capacity.positions tokens. Fetches:
// the keys and values of each layer.
DecoderGraph EncodeGraph(const ModelParams& params, compute::DType dtype, const DecoderCapacity& capacity,
                         int64_t tokens, int64_t sentences);

// Feeds: those of DecodeStep in its order, with R = `rows` and B = `sentences`; then float32 [R, 1], the log
// probabilities of the hypotheses. Fetches: the log probabilities of the 2 * beam_size best continuations of each, and
// their ids.
DecoderGraph StepGraph(const ModelParams& params, compute::DType dtype, const DecoderCapacity& capacity,
                       int64_t sentences, int64_t rows);

}  // namespace official::transformer
