// The elementwise ops in StableHLO. Floats are computed in float32, as in kernels.

#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/elementwise/op_table.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

using Operands = std::vector<HloValue>;  // in the shape of the result
using Rule = std::function<HloValue(HloBuilder& hlo, const Operands& x)>;

Rule Named(const char* op) {
  return [op](HloBuilder& hlo, const Operands& x) { return hlo.Op(op, x, x[0].type); };
}

Rule Compares(const char* direction) {
  return [direction](HloBuilder& hlo, const Operands& x) { return hlo.Compare(direction, x[0], x[1]); };
}

// The op "maximum" or "minimum", but NaN where an operand is: a compiler may pass NaN over.
Rule Extreme(const char* op) {
  return [op](HloBuilder& hlo, const Operands& x) {
    const HloValue &a = x[0], &b = x[1], numbers = hlo.Binary(op, a, b);
    return hlo.Select(hlo.Compare("NE", a, a), a, hlo.Select(hlo.Compare("NE", b, b), b, numbers));
  };
}

HloValue OneMinus(HloBuilder& hlo, const HloValue& x) { return hlo.Sub(hlo.SplatLike(1, x), x); }

const absl::flat_hash_map<OpName, Rule>& Rules() {
  static const auto* const rules = new absl::flat_hash_map<OpName, Rule>{
      {op::Neg, Named("negate")},
      {op::Abs, Named("abs")},
      {op::Sign, Named("sign")},
      {op::Square, [](HloBuilder& hlo, const Operands& x) { return hlo.Mul(x[0], x[0]); }},
      {op::Sqrt, Named("sqrt")},
      // The op "rsqrt" may be an approximation.
      {op::Rsqrt,
       [](HloBuilder& hlo, const Operands& x) { return hlo.Div(hlo.SplatLike(1, x[0]), hlo.Unary("sqrt", x[0])); }},
      {op::Exp, Named("exponential")},
      {op::Log, Named("log")},
      {op::Tanh, Named("tanh")},
      {op::Sigmoid,
       [](HloBuilder& hlo, const Operands& x) {
         const HloValue one = hlo.SplatLike(1, x[0]);
         return hlo.Div(one, hlo.Add(one, hlo.Unary("exponential", hlo.Unary("negate", x[0]))));
       }},
      {op::Relu,
       [](HloBuilder& hlo, const Operands& x) {
         const HloValue zero = hlo.SplatLike(0, x[0]);
         return hlo.Select(hlo.Compare("LT", x[0], zero), zero, x[0]);  // NaN stays NaN
       }},
      {op::Sin, Named("sine")},
      {op::Cos, Named("cosine")},
      {op::Add, Named("add")},
      {op::Sub, Named("subtract")},
      {op::Mul, Named("multiply")},
      {op::Div, Named("divide")},
      {op::Pow, Named("power")},
      {op::SquaredDifference,
       [](HloBuilder& hlo, const Operands& x) {
         const HloValue difference = hlo.Sub(x[0], x[1]);
         return hlo.Mul(difference, difference);
       }},
      {op::Maximum, Extreme("maximum")},
      {op::Minimum, Extreme("minimum")},
      {op::Equal, Compares("EQ")},
      {op::NotEqual, Compares("NE")},
      {op::Less, Compares("LT")},
      {op::LessEqual, Compares("LE")},
      {op::Greater, Compares("GT")},
      {op::GreaterEqual, Compares("GE")},
      {op::LogicalAnd, Named("and")},
      {op::LogicalOr, Named("or")},
      {op::LogicalNot, Named("not")},
      {op::Select, [](HloBuilder& hlo, const Operands& x) { return hlo.Select(x[0], x[1], x[2]); }},
      {op::BiasAdd, Named("add")},
      // Out converts.
      {op::Cast, [](HloBuilder&, const Operands& x) { return x[0]; }},
      {op::BroadcastTo, [](HloBuilder&, const Operands& x) { return x[0]; }},
      {op::ReluGrad,
       [](HloBuilder& hlo, const Operands& x) {
         const HloValue zero = hlo.SplatLike(0, x[0]);
         return hlo.Select(hlo.Compare("GT", x[relu_grad::kY], zero), x[relu_grad::kDy], zero);
       }},
      {op::TanhGrad,
       [](HloBuilder& hlo, const Operands& x) { return hlo.Mul(x[1], OneMinus(hlo, hlo.Mul(x[0], x[0]))); }},
      {op::SigmoidGrad,
       [](HloBuilder& hlo, const Operands& x) { return hlo.Mul(hlo.Mul(x[1], x[0]), OneMinus(hlo, x[0])); }},
  };
  return *rules;
}

bool OnlyMoves(const Node& node) { return node.Is(op::Select) || node.Is(op::Cast) || node.Is(op::BroadcastTo); }

void Emit(const Node& node, HloBuilder& hlo) {
  Operands operands;
  for (const Value& v : node.inputs()) {
    HloValue x = hlo.In(v);
    if (IsFloating(v.dtype()) && !OnlyMoves(node)) x = hlo.Convert(x, hlo::kF32);
    operands.push_back(hlo.Broadcast(x, node.output_types()[0].shape));
  }
  hlo.Out(node, 0, Rules().at(node.op().name)(hlo, operands));
}

const bool registered = [] {
  for (const ElementwiseOp& op : ElementwiseOps()) {
    RegisterHloEmitter({.op = op.name, .dtypes = op.key_types, .emit = Emit});
  }
  return true;
}();

}  // namespace
}  // namespace official::compute
