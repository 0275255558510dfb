// DecodeAttention in StableHLO: all positions that sequences may have, under a mask. Products take factors of the
// storage type, to which the weights are rounded, and sum in float32.

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::compute {
namespace {

namespace in = decode_attention;

// For each sequence and head, the sums of the products over one dimension. The heads are dimension 1 of a and 2 of b.
HloValue Product(HloBuilder& hlo, const HloValue& a, const HloValue& b, int sum_of_b, const Shape& result) {
  return hlo.Op("dot_general", {hlo.Factor(a), hlo.Factor(b)}, {hlo::kF32, result},
                absl::StrCat("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], "
                             "rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [2], "
                             "rhs_contracting_dimensions = [",
                             sum_of_b, "]>, ", kHloExactProducts));
}

class Decoding {
 public:
  Decoding(const Node& node, HloBuilder& hlo) : node_(node), hlo_(hlo), g_(node) {
    const HloValue rows = hlo.In(node.input(in::kCacheRows));
    lengths_ = hlo.In(node.input(in::kLengths));
    const Shape known{g_.batch, g_.known};
    is_known_ = hlo.Compare("LT", hlo.Iota({hlo::kI32, known}, 1), hlo.BroadcastInDim(lengths_, known, {0}));
    HloCheckNone(node, hlo, HloIsOutside(hlo, lengths_, g_.known), lengths_,
                 absl::StrCat("length $0 of sequence $1 is outside [0, ", g_.known, ")"));
    const HloValue wrong = hlo.Binary("and", is_known_, HloIsOutside(hlo, rows, g_.rows));
    const Shape flat{known.num_elements()};
    HloCheckNone(node, hlo, hlo.Reshape(wrong, flat), hlo.Reshape(rows, flat),
                 absl::StrCat("cache row $0 of position $1 of sequence $2 is outside [0, ", g_.rows, ")"), g_.known);
    places_ = Pairs(rows, hlo.Iota({hlo::kI32, known}, 1));
  }

  const DecodeGeometry& geometry() const { return g_; }

  // [B, P + 1, heads, columns]: the tokens in a cache, zeros where a sequence has none, then the newest.
  HloValue Tokens(int cache_input, int newest_input, int64_t columns) {
    const HloValue cache = hlo_.In(node_.input(cache_input)), newest = hlo_.In(node_.input(newest_input));
    const int64_t width = g_.heads * columns;
    const HloValue cached =
        hlo_.Op("gather", {cache, places_}, {cache.element(), {g_.batch, g_.known, width}},
                absl::StrCat("dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0, 1], "
                             "start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = ",
                             HloInts({1, 1, width})));
    const HloValue known = hlo_.BroadcastInDim(is_known_, cached.shape(), {0, 1});
    const HloValue all = hlo_.Concatenate(
        {hlo_.Select(known, cached, hlo_.SplatLike(0, cached)), hlo_.Reshape(newest, {g_.batch, 1, width})}, 1);
    return hlo_.Reshape(all, {g_.batch, g_.known + 1, g_.heads, columns});
  }

  // bool [B, heads, P + 1]
  HloValue IsToken() {
    const HloValue all = hlo_.Concatenate({is_known_, hlo_.Splat(1, {hlo::kI1, {g_.batch, 1}})}, 1);
    return hlo_.BroadcastInDim(all, {g_.batch, g_.heads, g_.known + 1}, {0, 2});
  }

  // Writes the newest token behind its sequence.
  void Write(int cache_input, int newest_input) {
    const Value variable = node_.input(cache_input);
    if (!variable.node()->Is(op::Variable)) return;  // nothing reads it again
    const HloValue cache = hlo_.In(variable);
    const HloValue places = Pairs(hlo_.Iota({hlo::kI32, {g_.batch}}, 0), lengths_);
    const std::string type = absl::StrCat("tensor<", cache.element(), ">");
    hlo_.Assign(variable,
                hlo_.Op("scatter", {cache, places, hlo_.In(node_.input(newest_input))}, cache.type,
                        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], "
                        "inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>",
                        absl::StrCat("{\n    ^bb0(%a: ", type, ", %b: ", type, "):\n      \"stablehlo.return\"(%b) : (",
                                     type, ") -> ()\n    }")));
  }

 private:
  // int32 [..., 2]
  HloValue Pairs(const HloValue& a, const HloValue& b) {
    std::vector<int64_t> dims(a.shape().dims().begin(), a.shape().dims().end());
    dims.push_back(1);
    return hlo_.Concatenate({hlo_.Reshape(a, Shape(dims)), hlo_.Reshape(b, Shape(dims))},
                            static_cast<int>(dims.size()) - 1);
  }

  const Node& node_;
  HloBuilder& hlo_;
  const DecodeGeometry g_;
  HloValue lengths_, is_known_;  // [B]; bool [B, P]
  HloValue places_;              // [B, P, 2]: row and position
};

void EmitDecodeAttention(const Node& node, HloBuilder& hlo) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Decoding decoding(node, hlo);
  const DecodeGeometry& g = decoding.geometry();
  const Shape weights{g.batch, g.heads, g.known + 1};
  const HloValue q = hlo.Reshape(hlo.In(node.input(in::kQ)), {g.batch, g.heads, g.key_size});
  const HloValue products = Product(hlo, q, decoding.Tokens(in::kKCache, in::kK, g.key_size), 3, weights);
  const HloValue scaled = hlo.Mul(products, hlo.SplatLike(g.scale, products));
  const HloValue scores = hlo.Select(decoding.IsToken(), scaled, hlo.SplatLike(-kInfinity, scaled));
  const auto over_tokens = [&](const HloValue& x) { return hlo.BroadcastInDim(x, weights, {0, 1}); };
  const HloValue max = hlo.Reduce("maximum", scores, -kInfinity, {2});
  const HloValue e = hlo.Unary("exponential", hlo.Sub(scores, over_tokens(max)));
  const HloValue w = hlo.Convert(hlo.Div(e, over_tokens(hlo.Reduce("add", e, 0, {2}))), q.element());
  const HloValue y =
      Product(hlo, w, decoding.Tokens(in::kVCache, in::kV, g.value_size), 1, {g.batch, g.heads, g.value_size});
  hlo.Out(node, in::kY, hlo.Reshape(y, {g.batch, g.heads * g.value_size}));
  decoding.Write(in::kKCache, in::kK);
  decoding.Write(in::kVCache, in::kV);
}

const bool registered =
    RegisterHloEmitter({.op = op::DecodeAttention, .dtypes = StorageTypes(), .emit = EmitDecodeAttention});

}  // namespace
}  // namespace official::compute
