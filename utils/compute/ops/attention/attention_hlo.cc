// Attention in StableHLO: all queries against all keys under a mask, since the lengths of the sequences are not known
// when the graph is compiled. The weights of all heads, [heads, queries, keys], are stored. Products take factors of
// the storage type, to which the weights and the gradients of the scores are rounded, and sum in float32; what is
// between them is float32.

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/packed/hlo_packed_rows.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// A product over one dimension, head by head. The factors are of one type, the sums float32.
HloValue Product(HloBuilder& hlo, const HloValue& a, int head_of_a, int sum_of_a, const HloValue& b, int head_of_b,
                 int sum_of_b, const Shape& result) {
  return hlo.Op("dot_general", {hlo.Factor(a), hlo.Factor(b)}, {hlo::kF32, result},
                absl::StrCat("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [", head_of_a,
                             "], rhs_batching_dimensions = [", head_of_b, "], lhs_contracting_dimensions = [", sum_of_a,
                             "], rhs_contracting_dimensions = [", sum_of_b, "]>, ", kHloExactProducts));
}

// The values of a node's inputs.
std::vector<HloValue> InputsOf(const Node& node, HloBuilder& hlo) {
  std::vector<HloValue> inputs;
  for (const Value& v : node.inputs()) inputs.push_back(hlo.In(v));
  return inputs;
}

// What the forward and the backward pass share.
class Heads {
 public:
  // With dropout the last of the node's inputs is the random state. `behind_barrier`: see EmitAttentionGrad.
  Heads(const Node& node, HloBuilder& hlo, absl::Span<const HloValue> inputs, bool behind_barrier)
      : hlo_(hlo),
        g_(node),
        queries_(node, hlo, attention::kQOffsets, g_.queries, "query"),
        keys_(node, hlo, attention::kKOffsets, g_.keys, "key"),
        weights_{g_.heads, g_.queries, g_.keys},
        q_(OfQueries(inputs[attention::kQ])),
        k_(OfKeys(inputs[attention::kK])),
        v_(OfKeys(inputs[attention::kV])),
        mask_(MakeMask()) {
    if (!g_.drop || g_.keys == 0) return;
    std::vector<HloValue> keys_of_draws = queries_.Keys(node.inputs().back());
    if (behind_barrier) keys_of_draws = hlo.Barrier(keys_of_draws);
    // The columns of the draws are the positions of the keys.
    factors_ = queries_.DropFactors(keys_of_draws, g_.heads, keys_.position());
  }

  const AttentionGeometry& geometry() const { return g_; }
  // [rows, heads * columns] as [rows, heads, columns]; what is in padding is not read: it may be no numbers.
  HloValue OfQueries(const HloValue& x) { return Divided(queries_, x); }
  // x as a factor of a product.
  HloValue Rounded(const HloValue& x) { return hlo_.Convert(x, q_.element()); }
  const HloValue& q() const { return q_; }
  const HloValue& k() const { return k_; }
  const HloValue& v() const { return v_; }
  const HloValue& mask() const { return mask_; }  // bool [heads, queries, keys]

  HloValue Scores() {
    const HloValue products = Product(hlo_, q_, 1, 2, k_, 1, 2, weights_);
    return hlo_.Mul(products, hlo_.SplatLike(g_.scale, products));
  }
  // A number for each head and query, for all keys.
  HloValue OverKeys(const HloValue& per_query) { return hlo_.BroadcastInDim(per_query, weights_, {0, 1}); }
  // x times its dropout.
  HloValue Drop(const HloValue& x) { return factors_.name.empty() ? x : hlo_.Mul(x, factors_); }
  // [heads, rows, columns] as the tensor [rows, heads * columns].
  HloValue Joined(const HloValue& x) {
    const Shape& shape = x.shape();
    return hlo_.Reshape(hlo_.Transpose(x, {1, 0, 2}), {shape.dim(1), shape.dim(0) * shape.dim(2)});
  }

 private:
  HloValue OfKeys(const HloValue& x) { return Divided(keys_, x); }
  HloValue Divided(const HloPackedRows& rows, const HloValue& x) {
    const int64_t columns = x.shape().dim(1) / g_.heads;
    return hlo_.Reshape(rows.ClearPadding(x), {x.shape().dim(0), g_.heads, columns});
  }
  // A query sees the keys of its sequence, with `causal` up to its own position.
  HloValue MakeMask() {
    const Shape table{g_.queries, g_.keys};
    const auto of_queries = [&](const HloValue& x) { return hlo_.BroadcastInDim(x, table, {0}); };
    const auto of_keys = [&](const HloValue& x) { return hlo_.BroadcastInDim(x, table, {1}); };
    HloValue mask = hlo_.Compare("EQ", of_queries(queries_.sequence()), of_keys(keys_.sequence()));
    mask = hlo_.Binary("and", mask, hlo_.Unary("not", of_queries(queries_.is_padding())));
    if (g_.causal) {
      mask = hlo_.Binary("and", mask, hlo_.Compare("GE", of_queries(queries_.position()), of_keys(keys_.position())));
    }
    return hlo_.Broadcast(mask, weights_);
  }

  HloBuilder& hlo_;
  const AttentionGeometry g_;
  const HloPackedRows queries_, keys_;
  const Shape weights_;
  const HloValue q_, k_, v_, mask_;
  HloValue factors_;  // of dropout, [heads, queries, keys], if there is any
};

void EmitAttention(const Node& node, HloBuilder& hlo) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Heads heads(node, hlo, InputsOf(node, hlo), /*behind_barrier=*/false);
  const AttentionGeometry& g = heads.geometry();
  const HloValue all = heads.Scores(), zeros = hlo.SplatLike(0, all);
  const HloValue scores = hlo.Select(heads.mask(), all, hlo.SplatLike(-kInfinity, all));
  const HloValue largest = hlo.Reduce("maximum", scores, -kInfinity, {2});
  const HloValue none = hlo.SplatLike(0, largest);  // of a query without keys
  const HloValue has_keys = hlo.Reduce("or", heads.mask(), 0, {2});
  const HloValue max = hlo.Select(has_keys, largest, none);
  const HloValue e = hlo.Select(heads.mask(), hlo.Unary("exponential", hlo.Sub(scores, heads.OverKeys(max))), zeros);
  const HloValue sum = hlo.Select(has_keys, hlo.Reduce("add", e, 0, {2}), hlo.SplatLike(1, max));
  const HloValue weights = heads.Drop(hlo.Div(e, heads.OverKeys(sum)));
  const HloValue y = Product(hlo, heads.Rounded(weights), 0, 2, heads.v(), 1, 0, {g.heads, g.queries, g.value_size});
  hlo.Out(node, attention::kY, heads.Joined(y));
  const HloValue log_sums = hlo.Add(hlo.Unary("log", sum), max);
  hlo.Out(node, attention::kLogSums, hlo.Transpose(hlo.Select(has_keys, log_sums, none), {1, 0}));
}

// With p the weights before and w those behind the dropout: dv = w^T dy, dp = dropout(dy v^T),
// ds = scale * p * (dp - sum(dy * y)), dq = ds k, dk = ds^T q
void EmitAttentionGrad(const Node& node, HloBuilder& hlo) {
  namespace places = attention_grad;
  // Without barriers a compiler would keep the weights and the random numbers of the forward pass until here.
  const std::vector<HloValue> in = hlo.Barrier(InputsOf(node, hlo));
  Heads heads(node, hlo, in, /*behind_barrier=*/true);
  const AttentionGeometry& g = heads.geometry();
  const Shape weights{g.heads, g.queries, g.keys};
  const HloValue y = heads.OfQueries(in[places::kY]), dy = heads.OfQueries(in[places::kDy]);
  const HloValue log_sums =
      hlo.Transpose(hlo.Reshape(heads.OfQueries(in[places::kLogSums]), {g.queries, g.heads}), {1, 0});
  const HloValue scores = heads.Scores(), zeros = hlo.SplatLike(0, scores);
  const HloValue p =
      hlo.Select(heads.mask(), hlo.Unary("exponential", hlo.Sub(scores, heads.OverKeys(log_sums))), zeros);
  const HloValue w = heads.Rounded(heads.Drop(p));
  const HloValue dv = Product(hlo, w, 0, 1, dy, 1, 0, {g.heads, g.keys, g.value_size});
  const HloValue dp = heads.Drop(Product(hlo, dy, 1, 2, heads.v(), 1, 2, weights));
  const HloValue terms = hlo.Mul(hlo.Convert(dy, hlo::kF32), hlo.Convert(y, hlo::kF32));
  const HloValue dot = hlo.Transpose(hlo.Reduce("add", terms, 0, {2}), {1, 0});
  const HloValue of_scores = hlo.Mul(hlo.Mul(p, hlo.Sub(dp, heads.OverKeys(dot))), hlo.SplatLike(g.scale, p));
  const HloValue ds = heads.Rounded(of_scores);
  hlo.Out(node, places::kDq, heads.Joined(Product(hlo, ds, 0, 2, heads.k(), 1, 0, {g.heads, g.queries, g.key_size})));
  hlo.Out(node, places::kDk, heads.Joined(Product(hlo, ds, 0, 1, heads.q(), 1, 0, {g.heads, g.keys, g.key_size})));
  hlo.Out(node, places::kDv, heads.Joined(dv));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::Attention, .dtypes = StorageTypes(), .emit = EmitAttention}),
    RegisterHloEmitter({.op = op::AttentionGrad, .dtypes = StorageTypes(), .emit = EmitAttentionGrad}),
};

}  // namespace
}  // namespace official::compute
