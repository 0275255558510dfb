// Neural matrix factorization in StableHLO: the whole batch, layer by layer.

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/recommendation/op/geometry.h"
#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::recommendation {
namespace {

namespace hlo_types = compute::hlo;
using compute::DType;
using compute::HloBuilder;
using compute::HloValue;
using compute::Node;
using compute::Shape;

// Columns [begin, end) of a matrix.
HloValue Columns(HloBuilder& hlo, const HloValue& x, int64_t begin, int64_t end) {
  return hlo.Slice(x, {0, begin}, {x.shape().dim(0), end});
}

HloValue SumOfRows(HloBuilder& hlo, const HloValue& x) { return hlo.Sum(x, {0}); }

HloValue IsPositive(HloBuilder& hlo, const HloValue& x) { return hlo.Compare("GT", x, hlo.SplatLike(0, x)); }

// The network on n pairs of a user and an item, forward and back.
class Network {
 public:
  // Users and items are int32 [n]; the tables and layers are the node's inputs from `first` on.
  Network(const Node& node, HloBuilder& hlo, int first, HloValue users, HloValue items)
      : node_(node),
        hlo_(hlo),
        g_(GeometryOf(node.attrs(), node.inputs(), first)),
        is_rounded_(node.attrs().Get<DType>("dtype") == DType::kBFloat16),
        users_(std::move(users)),
        items_(std::move(items)) {
    CheckIds("user", users_, g_.num_users);
    CheckIds("item", items_, g_.num_items);
  }

  // [n]
  HloValue Scores() {
    std::vector<HloValue> parts;
    if (g_.factors > 0) {
      gmf_user_ = Rows(g_.gmf, users_);
      gmf_item_ = Rows(g_.gmf + 1, items_);
      parts.push_back(hlo_.Mul(gmf_user_, gmf_item_));
    }
    if (!g_.layers.empty()) {
      outputs_ = {hlo_.Concatenate({Rows(g_.mlp, users_), Rows(g_.mlp + 1, items_)}, 1)};
      for (size_t k = 0; k + 1 < g_.layers.size(); ++k) {
        const HloValue y = Biased(Product(outputs_[k], 1, In(g_.kernel(k)), 0), g_.kernel(k) + 1);
        outputs_.push_back(hlo_.Select(IsPositive(hlo_, y), y, hlo_.SplatLike(0, y)));
      }
      parts.push_back(outputs_.back());
    }
    last_ = parts.size() == 1 ? parts[0] : hlo_.Concatenate(parts, 1);
    const HloValue scores = Biased(ExactProduct(last_, 1, In(g_.rating), 0), g_.rating + 1);
    return hlo_.Reshape(scores, {scores.shape().dim(0)});
  }

  // With the gradient of each score, [n], gives the outputs from 1 on their values.
  void Backward(const HloValue& of_scores) {
    const int64_t n = of_scores.shape().dim(0), width = last_.shape().dim(1);
    const HloValue column = hlo_.Reshape(of_scores, {n, 1});
    Out(g_.rating, ExactProduct(last_, 0, column, 0));
    Out(g_.rating + 1, SumOfRows(hlo_, column));
    const HloValue weights = hlo_.BroadcastInDim(hlo_.Reshape(In(g_.rating), {width}), last_.shape(), {1});
    const HloValue of_last = hlo_.Mul(hlo_.BroadcastInDim(of_scores, last_.shape(), {0}), weights);
    if (g_.factors > 0) {
      const HloValue of_product = Columns(hlo_, of_last, 0, g_.factors);
      Out(g_.gmf, hlo_.Mul(of_product, gmf_item_));
      Out(g_.gmf + 1, hlo_.Mul(of_product, gmf_user_));
    }
    if (g_.layers.empty()) return;
    HloValue dy = Columns(hlo_, of_last, g_.factors, width);
    for (size_t k = g_.layers.size() - 1; k-- > 0;) {
      dy = hlo_.Select(IsPositive(hlo_, outputs_[k + 1]), dy, hlo_.SplatLike(0, dy));
      Out(g_.kernel(k), Product(outputs_[k], 0, dy, 0));
      Out(g_.kernel(k) + 1, SumOfRows(hlo_, dy));
      dy = Product(dy, 1, In(g_.kernel(k)), 1);
    }
    const int64_t half = g_.layers[0] / 2;
    Out(g_.mlp, Columns(hlo_, dy, 0, half));
    Out(g_.mlp + 1, Columns(hlo_, dy, half, 2 * half));
  }

 private:
  static constexpr int kFirstOfLoss = 3;  // the input whose gradient is output 1

  HloValue In(int input) { return hlo_.In(node_.input(input)); }
  void Out(int input, const HloValue& gradient) { hlo_.Out(node_, input - kFirstOfLoss + 1, gradient); }
  HloValue Rows(int table, const HloValue& ids) { return compute::HloRowsAt(hlo_, In(table), ids); }

  void CheckIds(const char* what, const HloValue& ids, int64_t limit) {
    HloCheckNone(node_, hlo_, compute::HloIsOutside(hlo_, ids, limit), ids,
                 absl::StrCat(what, " $0 at position $1 is outside [0, ", limit, ")"));
  }

  HloValue Biased(const HloValue& x, int bias) { return hlo_.Add(x, hlo_.BroadcastInDim(In(bias), x.shape(), {1})); }

  // The sum of the products over dimension `da` of a and `db` of b: matrices.
  HloValue ExactProduct(const HloValue& a, int da, const HloValue& b, int db) {
    const Shape shape{a.shape().dim(1 - da), b.shape().dim(1 - db)};
    return hlo_.Op("dot_general", {a, b}, {hlo_types::kF32, shape},
                   absl::StrCat("dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [", da,
                                "], rhs_contracting_dimensions = [", db, "]>, ", compute::kHloExactProducts));
  }
  // The same with factors of the network's type.
  HloValue Product(const HloValue& a, int da, const HloValue& b, int db) {
    const auto factor = [&](const HloValue& x) {
      return is_rounded_ ? hlo_.Convert(x, compute::HloElement(DType::kBFloat16)) : x;
    };
    return ExactProduct(factor(a), da, factor(b), db);
  }

  const Node& node_;
  HloBuilder& hlo_;
  const FactorizationGeometry g_;
  const bool is_rounded_;
  const HloValue users_, items_;
  HloValue gmf_user_, gmf_item_;
  std::vector<HloValue> outputs_;  // of the perceptron: its input, then what each layer makes
  HloValue last_;                  // [n, ...], from which `rating` makes the scores
};

// All scores are computed, whatever "enough" says.
void EmitScores(const Node& node, HloBuilder& hlo) {
  const Shape& shape = node.input(1).shape();
  const Shape flat{shape.num_elements()};
  const HloValue users = hlo.Reshape(hlo.BroadcastInDim(hlo.In(node.input(0)), shape, {0}), flat);
  Network network(node, hlo, 2, users, hlo.Reshape(hlo.In(node.input(1)), flat));
  hlo.Out(node, 0, hlo.Reshape(network.Scores(), shape));
}

void EmitLoss(const Node& node, HloBuilder& hlo) {
  Network network(node, hlo, 3, hlo.In(node.input(0)), hlo.In(node.input(1)));
  const HloValue labels = hlo.In(node.input(2)), scores = network.Scores();
  const auto splat = [&](double value) { return hlo.SplatLike(value, scores); };
  const HloValue shifted = hlo.Sub(scores, splat(node.attrs().GetFloat("shift")));
  const double limit = node.attrs().GetFloat("limit");
  const bool is_limited = !std::isinf(limit);
  const HloValue z = is_limited ? hlo.Op("clamp", {splat(-limit), shifted, splat(limit)}, shifted.type) : shifted;
  // log(1 + e^z) - label * z, without e^z of a large z
  const HloValue e = hlo.Unary("exponential", hlo.Unary("negate", hlo.Unary("abs", z)));
  const HloValue softplus = hlo.Add(hlo.Binary("maximum", z, splat(0)), hlo.Unary("log_plus_one", e));
  const HloValue losses = hlo.Sub(softplus, hlo.Mul(labels, z));
  const HloValue sum = hlo.Sum(losses, {0});
  const auto n = static_cast<double>(scores.shape().dim(0));
  hlo.Out(node, 0, hlo.Div(sum, hlo.SplatLike(n, sum)));

  const HloValue one = splat(1);
  const HloValue probabilities =
      hlo.Div(hlo.Select(IsPositive(hlo, z), one, e), hlo.Add(one, e));  // of e^-|z| in either case
  HloValue of_scores = hlo.Mul(hlo.Sub(probabilities, labels), splat(1 / n));
  if (is_limited) of_scores = hlo.Select(hlo.Compare("EQ", z, shifted), of_scores, splat(0));
  network.Backward(of_scores);
}

const bool registered[] = {
    compute::RegisterHloEmitter({.op = op::NeuralFactorizationScores, .dtypes = {DType::kInt32}, .emit = EmitScores}),
    compute::RegisterHloEmitter({.op = op::NeuralFactorizationLoss, .dtypes = {DType::kInt32}, .emit = EmitLoss}),
};

}  // namespace
}  // namespace official::recommendation
