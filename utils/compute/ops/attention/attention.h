// Scaled dot-product attention over packed sequences: tensors whose rows are tokens, sequences one behind the other.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

struct AttentionInputs {
  // float32, bfloat16 or half, all of one type; Tq and Tk count rows.
  Value q;  // [Tq, num_heads * key_size]
  Value k;  // [Tk, num_heads * key_size]
  Value v;  // [Tk, num_heads * value_size]
  // int32 [B + 1], ascending from 0: sequence b has rows [offsets[b], offsets[b + 1]). Rows from offsets[B] on are
  // padding: never read, and zero in the result and in the gradients. A sequence may be empty.
  Value q_offsets, k_offsets;
  // RandomState of dropout.h, its examples being sequences. For a dropout rate above 0 only.
  Value random_state = {};
};

struct AttentionParams {
  int num_heads = 1;
  bool causal = false;  // query i of a sequence sees its keys 0 to i only
  double scale = 1;
  double dropout_rate = 0;      // of the weights, after the softmax; tf.nn.dropout
  absl::string_view name = "";  // of the dropout's random numbers
};

// Of each head: softmax(scale * q k^T) v over the keys of the query's own sequence -> [Tq, num_heads * value_size] of
// q's type; 0 for a sequence without keys. The weights are never stored: the backward pass makes them again from the
// logarithm of each row's sum. Whether a weight is kept is a function of (seed, step, name, sequence in the global
// batch, head, query, key) only. The same bits for any number of threads. Running fails with InvalidArgument if offsets
// do not ascend from 0 or go beyond the rows.
// Source: "Attention Is All You Need" 3.2.1; FlashAttention (Dao et al. 2022) for the backward pass.
Value Attention(const AttentionInputs& inputs, const AttentionParams& params);

// For decoding: one query of each sequence against a cache, of which the first lengths[b] of S positions hold keys.
// q [B, num_heads * key_size], k_cache [B, S, num_heads * key_size], v_cache [B, S, num_heads * value_size], lengths
// int32 [B] -> [B, num_heads * value_size]; 0 for a length of 0. The rest of the cache is not read. No gradient.
// Running fails with InvalidArgument if a length is outside [0, S].
Value DecodeAttention(Value q, Value k_cache, Value v_cache, Value lengths, int num_heads, double scale);

}  // namespace official::compute
