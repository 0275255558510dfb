// Scaled dot-product attention over packed sequences: tensors whose rows are tokens, one sequence after the other.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName Attention("Attention");
inline constexpr OpName AttentionGrad("AttentionGrad");
inline constexpr OpName DecodeAttention("DecodeAttention");

}  // namespace official::compute::op

// The inputs and outputs of Attention. AttentionGrad has the first five inputs in the same places.
namespace official::compute::attention {
enum Input : int { kQ, kK, kV, kQOffsets, kKOffsets, kRandomState };
enum Output : int {
  kY,
  kLogSums,  // float32 [Tq, num_heads]: the logarithm of the sum of each row's exponentials
};
}  // namespace official::compute::attention

// The inputs and outputs of AttentionGrad: those of the forward pass and the gradient dy of its result.
namespace official::compute::attention_grad {
enum Input : int { kQ, kK, kV, kQOffsets, kKOffsets, kY, kLogSums, kDy, kRandomState };
enum Output : int { kDq, kDk, kDv };
}  // namespace official::compute::attention_grad

// The inputs and the output of DecodeAttention.
namespace official::compute::decode_attention {
enum Input : int { kQ, kK, kV, kKCache, kVCache, kCacheRows, kLengths };
enum Output : int { kY };
}  // namespace official::compute::decode_attention

namespace official::compute {

struct AttentionInputs {
  // Type float32, bfloat16 or half, the same for all; Tq and Tk are numbers of rows.
  Value q;  // [Tq, num_heads * key_size]
  Value k;  // [Tk, num_heads * key_size]
  Value v;  // [Tk, num_heads * value_size]
  // int32 [B + 1], ascending from 0: sequence b has rows [offsets[b], offsets[b + 1]). Rows from offsets[B] on are
  // padding: never read, and zero in the result and in the gradients. A sequence may be empty.
  Value q_offsets, k_offsets;
  // RandomState of dropout.h, with sequences as the examples. Needed for a dropout rate above 0 only.
  Value random_state = {};
};

struct AttentionParams {
  int num_heads = 1;
  bool causal = false;  // query i of a sequence sees its keys 0 to i only
  double scale = 1;
  double dropout_rate = 0;      // for the weights, after the softmax; tf.nn.dropout
  absl::string_view name = "";  // the name of the dropout's random numbers
};

// For each head, softmax(scale * q k^T) v over the keys of the query's own sequence -> [Tq, num_heads * value_size] of
// q's type; 0 for a sequence without keys. The weights are never stored: the backward pass computes them again from the
// logarithm of each row's sum. Whether a weight is kept is a function of (seed, step, name, sequence in the global
// batch, head, query, key) only. The bits are the same for any number of threads. Running fails with InvalidArgument if
// offsets do not ascend from 0 or go beyond the rows. GPUs take heads of up to 128 columns.
// Source: "Attention Is All You Need" 3.2.1; FlashAttention (Dao et al. 2022) for the backward pass.
Value Attention(const AttentionInputs& inputs, const AttentionParams& params);

struct DecodeAttentionInputs {
  // The newest token of each of B sequences, float32, bfloat16 or half.
  Value q, k;  // [B, num_heads * key_size]
  Value v;     // [B, num_heads * value_size]
  // Variables of q's type: row c, position p holds the k or v of the token at position p of some sequence, written when
  // that token was the newest in row c of the batch. C is at least B.
  Value k_cache;  // [C, S, num_heads * key_size]
  Value v_cache;  // [C, S, num_heads * value_size]
  // int32 [B, P], P at most S: the rows of the caches that hold the earlier tokens of the sequences. So sequences that
  // begin alike share them, and none is ever moved.
  Value cache_rows;
  Value lengths;  // int32 [B]: the number of earlier tokens of each sequence
};

// One step of decoding: Attention of each sequence's newest token over itself and its earlier tokens, at positions p <
// lengths[b] of the rows cache_rows[b, p] -> [B, num_heads * value_size]. Writes k and v to row b, position lengths[b]
// of the caches, which no other sequence may name; the rest of the caches is neither changed nor read. No gradient.
// Running fails with InvalidArgument if a length is outside [0, P), or a row outside [0, C). GPUs take heads of up to
// 256 columns.
Value DecodeAttention(const DecodeAttentionInputs& inputs, int num_heads, double scale);

}  // namespace official::compute
