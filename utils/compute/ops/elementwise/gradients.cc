// Gradients of the elementwise ops: dx from dy, the inputs and, where that saves keeping an input, the output. They
// have the shape of the output; Gradients() sums them to those of the inputs.

#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/elementwise/op_table.h"

namespace official::compute {
namespace {

// A scalar of x's type.
Value ScalarLike(Value x, float value) { return x.graph()->Constant(Tensor::Scalar<float>(value).CastTo(x.dtype())); }

Value ZeroWhere(Value condition, Value dy) { return Select(condition, ScalarLike(dy, 0), dy); }
Value ZeroUnless(Value condition, Value dy) { return Select(condition, dy, ScalarLike(dy, 0)); }

struct Step {
  Value dy, y, a, b;  // a and b: the first two inputs
};
using Rule = std::function<std::vector<Value>(const Step&)>;

std::vector<Value> PowGradient(const Step& s) {
  const Value da = Mul(Mul(s.dy, s.b), Pow(s.a, Sub(s.b, ScalarLike(s.b, 1))));
  // log(a) counts where a is positive only, as in TensorFlow.
  const Value log_a = ZeroUnless(Greater(s.a, ScalarLike(s.a, 0)), Log(s.a));
  return {da, Mul(Mul(s.dy, s.y), log_a)};
}

std::vector<Value> SquaredDifferenceGradient(const Step& s) {
  const Value difference = Sub(s.a, s.b);
  const Value da = Mul(s.dy, Add(difference, difference));
  return {da, Neg(da)};
}

std::vector<Value> CastGradient(const Step& s) {
  if (!IsFloating(s.a.dtype()) || !IsFloating(s.y.dtype())) return {Value()};
  return {Cast(s.dy, s.a.dtype())};
}

const absl::flat_hash_map<OpName, Rule>& Rules() {
  using Values = std::vector<Value>;
  static const auto* const rules = new absl::flat_hash_map<OpName, Rule>{
      {op::Neg, [](const Step& s) { return Values{Neg(s.dy)}; }},
      {op::Abs, [](const Step& s) { return Values{Mul(s.dy, Sign(s.a))}; }},
      {op::Square, [](const Step& s) { return Values{Mul(s.dy, Add(s.a, s.a))}; }},
      {op::Sqrt, [](const Step& s) { return Values{Div(Mul(s.dy, ScalarLike(s.dy, 0.5f)), s.y)}; }},
      {op::Rsqrt, [](const Step& s) { return Values{Mul(Mul(s.dy, ScalarLike(s.dy, -0.5f)), Mul(s.y, Square(s.y)))}; }},
      {op::Exp, [](const Step& s) { return Values{Mul(s.dy, s.y)}; }},
      {op::Log, [](const Step& s) { return Values{Div(s.dy, s.a)}; }},
      {op::Tanh,
       [](const Step& s) {
         return Values{Apply(op::TanhGrad, {s.y, s.dy})};
       }},
      {op::Sigmoid,
       [](const Step& s) {
         return Values{Apply(op::SigmoidGrad, {s.y, s.dy})};
       }},
      // Of y rather than x, so that Relu may overwrite x.
      {op::Relu,
       [](const Step& s) {
         return Values{Apply(op::ReluGrad, {s.dy, s.y})};
       }},
      {op::ReluGrad,
       [](const Step& s) {
         return Values{Apply(op::ReluGrad, {s.dy, s.b}), Value()};
       }},
      {op::Sin, [](const Step& s) { return Values{Mul(s.dy, Cos(s.a))}; }},
      {op::Cos, [](const Step& s) { return Values{Neg(Mul(s.dy, Sin(s.a)))}; }},
      {op::Add,
       [](const Step& s) {
         return Values{s.dy, s.dy};
       }},
      {op::Sub,
       [](const Step& s) {
         return Values{s.dy, Neg(s.dy)};
       }},
      {op::Mul,
       [](const Step& s) {
         return Values{Mul(s.dy, s.b), Mul(s.dy, s.a)};
       }},
      {op::Div,
       [](const Step& s) {
         return Values{Div(s.dy, s.b), Neg(Div(Mul(s.dy, s.y), s.b))};
       }},
      {op::Pow, PowGradient},
      {op::SquaredDifference, SquaredDifferenceGradient},
      {op::Maximum,
       [](const Step& s) {
         const Value takes_a = GreaterEqual(s.a, s.b);
         return Values{ZeroUnless(takes_a, s.dy), ZeroWhere(takes_a, s.dy)};
       }},
      {op::Minimum,
       [](const Step& s) {
         const Value takes_a = LessEqual(s.a, s.b);
         return Values{ZeroUnless(takes_a, s.dy), ZeroWhere(takes_a, s.dy)};
       }},
      {op::Select,
       [](const Step& s) {
         return Values{Value(), ZeroUnless(s.a, s.dy), ZeroWhere(s.a, s.dy)};
       }},
      {op::Cast, CastGradient},
      {op::BroadcastTo, [](const Step& s) { return Values{s.dy}; }},
      {op::BiasAdd,
       [](const Step& s) {
         return Values{s.dy, s.dy};
       }},
  };
  return *rules;
}

}  // namespace

bool HasElementwiseGradient(OpName op) { return Rules().contains(op); }

std::vector<Value> ElementwiseGradient(const Node& node, absl::Span<const Value> output_gradients) {
  const Value y = node.output(0);
  if (!IsFloating(y.dtype())) return std::vector<Value>(node.num_inputs());
  return Rules().at(node.op().name)(
      {output_gradients[0], y, node.input(0), node.num_inputs() > 1 ? node.input(1) : Value()});
}

}  // namespace official::compute
