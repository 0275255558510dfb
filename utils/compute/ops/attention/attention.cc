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

// Inputs q, k, v, offsets of the queries, of the keys[, random state]; outputs: the result, and [Tq, heads] the
// logarithm of the sum of each row's exponentials.
absl::StatusOr<std::vector<TensorType>> AttentionType(const InferContext& c) {
  const double rate = c.attrs.GetFloat("dropout_rate");
  if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a dropout rate in [0, 1), got ", rate));
  if (c.num_inputs() != 5 + NumRandomInputs(c.attrs)) return c.Error("needs q, k, v, offsets and a random state");
  for (int i = 0; i < 3; ++i) {
    if (c.shape(i).rank() != 2 || c.dtype(i) != c.dtype(0) || !IsStorageType(c.dtype(i))) {
      return c.Error("needs q, k and v [rows, columns] of one type: float32, bfloat16 or half");
    }
    RETURN_IF_ERROR(CheckHeads(c, c.shape(i).dim(1)));
  }
  if (c.shape(0).dim(1) != c.shape(1).dim(1)) return c.Error("needs q and k of equal columns");
  if (c.shape(1).dim(0) != c.shape(2).dim(0)) return c.Error("needs k and v of equal rows");
  if (c.type(3) != c.type(4) || c.dtype(3) != DType::kInt32 || c.shape(3).rank() != 1 || c.shape(3).dim(0) < 1) {
    return c.Error("needs two int32 offsets [B + 1]");
  }
  if (c.num_inputs() == 6 && c.type(5) != TensorType{DType::kInt64, {3}}) {
    return c.Error("needs a random state int64[3]");
  }
  const int64_t rows = c.shape(0).dim(0);
  return std::vector<TensorType>{{c.dtype(0), {rows, c.shape(2).dim(1)}},
                                 {DType::kFloat32, {rows, c.attrs.GetInt("num_heads")}}};
}

// Inputs of the forward pass, its outputs and the result's gradient before the random state.
absl::StatusOr<std::vector<TensorType>> AttentionGradType(const InferContext& c) {
  if (c.num_inputs() != 8 + NumRandomInputs(c.attrs) || c.type(7) != c.type(5)) {
    return c.Error("needs the forward pass's values and the result's gradient");
  }
  return std::vector<TensorType>{c.type(0), c.type(1), c.type(2)};
}

std::vector<Value> AttentionGradient(const Node& node, absl::Span<const Value> dy) {
  std::vector<Value> gradients(node.num_inputs());
  if (!dy[0]) return gradients;
  std::vector<Value> inputs(node.inputs().begin(), node.inputs().begin() + 5);
  inputs.insert(inputs.end(), {node.output(0), node.output(1), dy[0]});
  if (node.num_inputs() == 6) inputs.push_back(node.input(5));
  Node* const gradient = ApplyNode(op::AttentionGrad, inputs, node.attrs());
  for (int i = 0; i < 3; ++i) gradients[i] = OutputOf(gradient, i);
  return gradients;
}

// Inputs q, k, v, caches of k and v, rows in the caches, lengths.
absl::StatusOr<std::vector<TensorType>> DecodeAttentionType(const InferContext& c) {
  if (c.num_inputs() != 7 || c.shape(0).rank() != 2 || c.shape(2).rank() != 2 || c.shape(3).rank() != 3 ||
      c.shape(5).rank() != 2) {
    return c.Error("needs q, k and v [B, columns], caches [C, S, columns], rows [B, P] and lengths [B]");
  }
  for (int i = 0; i < 5; ++i) {
    if (c.dtype(i) != c.dtype(0) || !IsStorageType(c.dtype(i))) {
      return c.Error("needs q, k, v and caches of one type: float32, bfloat16 or half");
    }
  }
  RETURN_IF_ERROR(CheckHeads(c, c.shape(0).dim(1)));
  RETURN_IF_ERROR(CheckHeads(c, c.shape(2).dim(1)));
  const int64_t batch = c.shape(0).dim(0), rows = c.shape(3).dim(0), positions = c.shape(3).dim(1);
  if (c.shape(1) != c.shape(0) || c.shape(2).dim(0) != batch || rows < batch ||
      c.shape(3).dim(2) != c.shape(0).dim(1) || c.shape(4) != Shape({rows, positions, c.shape(2).dim(1)})) {
    return c.Error("needs q, k and v [B, columns] and caches [C, S, columns] with C of at least B");
  }
  if (c.dtype(5) != DType::kInt32 || c.shape(5).dim(0) != batch || c.shape(5).dim(1) > positions ||
      c.type(6) != TensorType{DType::kInt32, {batch}}) {
    return c.Error("needs int32 rows [B, P], P at most S, and int32 lengths [B]");
  }
  return std::vector<TensorType>{{c.dtype(0), c.shape(2)}};
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
