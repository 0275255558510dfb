#include "utils/compute/ops/attention/attention.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/dropout/dropout.h"

namespace official::compute {
namespace {

// Number of inputs that random numbers add.
int NumRandomInputs(const Attrs& attrs) { return attrs.GetFloat("dropout_rate") > 0 ? 1 : 0; }

absl::Status CheckHeads(const InferContext& c, int64_t size) {
  const int64_t heads = c.attrs.GetInt("num_heads");
  if (heads >= 1 && size >= heads && size % heads == 0) return absl::OkStatus();
  return c.Error(absl::StrCat("needs columns that ", heads, " heads divide"));
}

absl::StatusOr<std::vector<TensorType>> AttentionType(const InferContext& c) {
  namespace in = attention;
  const double rate = c.attrs.GetFloat("dropout_rate");
  if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a dropout rate in [0, 1), got ", rate));
  if (c.num_inputs() != in::kRandomState + NumRandomInputs(c.attrs)) {
    return c.Error("needs q, k, v, offsets and a random state");
  }
  for (int i = in::kQ; i <= in::kV; ++i) {
    if (c.shape(i).rank() != 2 || c.dtype(i) != c.dtype(in::kQ) || !IsStorageType(c.dtype(i))) {
      return c.Error("needs q, k and v [rows, columns] of one type: float32, bfloat16 or half");
    }
    RETURN_IF_ERROR(CheckHeads(c, c.shape(i).dim(1)));
  }
  if (c.shape(in::kQ).dim(1) != c.shape(in::kK).dim(1)) return c.Error("needs q and k of equal columns");
  if (c.shape(in::kK).dim(0) != c.shape(in::kV).dim(0)) return c.Error("needs k and v of equal rows");
  if (c.type(in::kQOffsets) != c.type(in::kKOffsets) || c.dtype(in::kQOffsets) != DType::kInt32 ||
      c.shape(in::kQOffsets).rank() != 1 || c.shape(in::kQOffsets).dim(0) < 1) {
    return c.Error("needs two int32 offsets [B + 1]");
  }
  if (c.num_inputs() > in::kRandomState && c.type(in::kRandomState) != TensorType{DType::kInt64, {3}}) {
    return c.Error("needs a random state int64[3]");
  }
  const int64_t rows = c.shape(in::kQ).dim(0);
  return std::vector<TensorType>{{c.dtype(in::kQ), {rows, c.shape(in::kV).dim(1)}},
                                 {DType::kFloat32, {rows, c.attrs.GetInt("num_heads")}}};
}

absl::StatusOr<std::vector<TensorType>> AttentionGradType(const InferContext& c) {
  if (c.num_inputs() != attention_grad::kRandomState + NumRandomInputs(c.attrs) ||
      c.type(attention_grad::kDy) != c.type(attention_grad::kY)) {
    return c.Error("needs the forward pass's values and the result's gradient");
  }
  return std::vector<TensorType>{c.type(attention_grad::kQ), c.type(attention_grad::kK), c.type(attention_grad::kV)};
}

std::vector<Value> AttentionGradient(const Node& node, absl::Span<const Value> dy) {
  std::vector<Value> gradients(node.num_inputs());
  if (!dy[attention::kY]) return gradients;
  std::vector<Value> inputs(node.inputs().begin(), node.inputs().begin() + attention::kRandomState);
  inputs.insert(inputs.end(), {node.output(attention::kY), node.output(attention::kLogSums), dy[attention::kY]});
  if (node.num_inputs() > attention::kRandomState) inputs.push_back(node.input(attention::kRandomState));
  Node* const gradient = ApplyNode(op::AttentionGrad, inputs, node.attrs());
  gradients[attention::kQ] = OutputOf(gradient, attention_grad::kDq);
  gradients[attention::kK] = OutputOf(gradient, attention_grad::kDk);
  gradients[attention::kV] = OutputOf(gradient, attention_grad::kDv);
  return gradients;
}

absl::StatusOr<std::vector<TensorType>> DecodeAttentionType(const InferContext& c) {
  namespace in = decode_attention;
  if (c.num_inputs() != in::kLengths + 1 || c.shape(in::kQ).rank() != 2 || c.shape(in::kV).rank() != 2 ||
      c.shape(in::kKCache).rank() != 3 || c.shape(in::kCacheRows).rank() != 2) {
    return c.Error("needs q, k and v [B, columns], caches [C, S, columns], rows [B, P] and lengths [B]");
  }
  for (int i = in::kQ; i <= in::kVCache; ++i) {
    if (c.dtype(i) != c.dtype(in::kQ) || !IsStorageType(c.dtype(i))) {
      return c.Error("needs q, k, v and caches of one type: float32, bfloat16 or half");
    }
  }
  RETURN_IF_ERROR(CheckHeads(c, c.shape(in::kQ).dim(1)));
  RETURN_IF_ERROR(CheckHeads(c, c.shape(in::kV).dim(1)));
  const int64_t batch = c.shape(in::kQ).dim(0);
  const int64_t rows = c.shape(in::kKCache).dim(0), positions = c.shape(in::kKCache).dim(1);
  if (c.shape(in::kK) != c.shape(in::kQ) || c.shape(in::kV).dim(0) != batch || rows < batch ||
      c.shape(in::kKCache).dim(2) != c.shape(in::kQ).dim(1) ||
      c.shape(in::kVCache) != Shape({rows, positions, c.shape(in::kV).dim(1)})) {
    return c.Error("needs q, k and v [B, columns] and caches [C, S, columns] with C of at least B");
  }
  if (c.dtype(in::kCacheRows) != DType::kInt32 || c.shape(in::kCacheRows).dim(0) != batch ||
      c.shape(in::kCacheRows).dim(1) > positions || c.type(in::kLengths) != TensorType{DType::kInt32, {batch}}) {
    return c.Error("needs int32 rows [B, P], P at most S, and int32 lengths [B]");
  }
  return std::vector<TensorType>{{c.dtype(in::kQ), c.shape(in::kV)}};
}

const bool registered = [] {
  RegisterOp({
      .name = op::Attention,
      .infer = AttentionType,
      .gradient = AttentionGradient,
      .tolerance = {1e-5, 2e-2},
  });
  RegisterOp({.name = op::AttentionGrad, .infer = AttentionGradType});
  RegisterOp({
      .name = op::DecodeAttention,
      .infer = DecodeAttentionType,
      .has_side_effect = true,
      .tolerance = {1e-5, 2e-2},
  });
  return true;
}();

}  // namespace

Value Attention(const AttentionInputs& in, const AttentionParams& params) {
  std::vector<Value> inputs = {in.q, in.k, in.v, in.q_offsets, in.k_offsets};
  if (params.dropout_rate > 0) inputs.push_back(in.random_state);
  return Apply(op::Attention, inputs,
               Attrs{{"num_heads", int64_t{params.num_heads}},
                     {"causal", params.causal},
                     {"scale", params.scale},
                     {"dropout_rate", params.dropout_rate},
                     {"stream", DropoutStream(params.name)}});
}

Value DecodeAttention(const DecodeAttentionInputs& in, int num_heads, double scale) {
  return Apply(op::DecodeAttention, {in.q, in.k, in.v, in.k_cache, in.v_cache, in.cache_rows, in.lengths},
               Attrs{{"num_heads", int64_t{num_heads}}, {"scale", scale}});
}

}  // namespace official::compute
