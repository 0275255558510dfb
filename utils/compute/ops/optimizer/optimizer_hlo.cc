// The optimizers in StableHLO. Each variable of an update is computed by itself; the compiler fuses what it likes.

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/optimizer/clip.h"
#include "utils/compute/ops/optimizer/moving_average.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::compute {
namespace {

HloValue Scalar(HloBuilder& hlo, double value) { return hlo.Splat(value, {hlo::kF32, {}}); }

// The tensors of an update: groups behind the scalars and, in a guarded update, behind the guard.
class Update {
 public:
  Update(const Node& node, HloBuilder& hlo, int num_scalars, int group_size)
      : node_(node),
        hlo_(hlo),
        group_size_(group_size),
        num_scalars_(num_scalars),
        limit_(ClipValueOf(node.attrs())),
        guarded_(node.attrs().GetBool("guarded")) {}

  int begin() const { return num_scalars_ + (guarded_ ? update_guard::kNumScalars : 0); }
  int end() const { return node_.num_inputs(); }
  int step() const { return group_size_; }

  // The gradient, or what stands in its place, without the loss scale, clipped.
  HloValue Gradient(int input) { return Clipped(Unscaled(input)); }
  // x with elements within the limit that there may be.
  HloValue Clipped(const HloValue& x) {
    if (limit_ == kNoClip) return x;
    return hlo_.Binary("maximum", hlo_.Binary("minimum", x, hlo_.SplatLike(limit_, x)), hlo_.SplatLike(-limit_, x));
  }
  // The same before it is clipped.
  HloValue Unscaled(int input) {
    const HloValue g = hlo_.In(node_.input(input));
    if (!guarded_) return g;
    const HloValue scale = hlo_.In(node_.input(num_scalars_ + update_guard::kLossScale));
    return hlo_.Div(g, hlo_.Broadcast(scale, g.shape()));
  }

  // Each element of a bool vector, if the update applies, else false.
  HloValue IfApplies(const HloValue& x) {
    return guarded_ ? hlo_.Binary("and", x, hlo_.Broadcast(Applies(), x.shape())) : x;
  }

  // Gives a variable a new value, if the update applies.
  void Assign(int input, const HloValue& value) {
    const Value variable = node_.input(input);
    if (!guarded_) return hlo_.Assign(variable, value);
    hlo_.Assign(variable, hlo_.Select(Applies(), value, hlo_.In(variable)));
  }

 private:
  HloValue Applies() { return hlo_.In(node_.input(num_scalars_ + update_guard::kApply)); }

  const Node& node_;
  HloBuilder& hlo_;
  int group_size_, num_scalars_;
  float limit_;
  bool guarded_;
};

// x times a float32 scalar.
HloValue Times(HloBuilder& hlo, const HloValue& x, const HloValue& scalar) {
  return hlo.Mul(x, hlo.Broadcast(scalar, x.shape()));
}

void EmitGradientDescent(const Node& node, HloBuilder& hlo) {
  namespace places = apply_gradient_descent;
  Update update(node, hlo, places::kNumScalars, places::kGroupSize);
  const HloValue lr = hlo.In(node.input(places::kLearningRate));
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const HloValue v = hlo.In(node.input(i + places::kVariable));
    update.Assign(i + places::kVariable, hlo.Sub(v, Times(hlo, update.Gradient(i + places::kGradient), lr)));
  }
}

void EmitMomentum(const Node& node, HloBuilder& hlo) {
  namespace places = apply_momentum;
  Update update(node, hlo, places::kNumScalars, places::kGroupSize);
  const HloValue lr = hlo.In(node.input(places::kLearningRate));
  const HloValue momentum = Scalar(hlo, node.attrs().GetFloat("momentum"));
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const HloValue v = hlo.In(node.input(i + places::kVariable)), g = update.Gradient(i + places::kGradient);
    const HloValue a = hlo.Add(Times(hlo, hlo.In(node.input(i + places::kMomentum)), momentum), g);
    HloValue step = Times(hlo, a, lr);
    if (node.attrs().GetBool("nesterov")) {
      step = hlo.Add(Times(hlo, g, lr), Times(hlo, Times(hlo, a, momentum), lr));
    }
    update.Assign(i + places::kMomentum, a);
    update.Assign(i + places::kVariable, hlo.Sub(v, step));
  }
}

// The rule of Adam for a node's scalars and attributes.
class AdamRule {
 public:
  AdamRule(const Node& node, HloBuilder& hlo) : hlo_(hlo), epsilon_(node.attrs().GetFloat("epsilon")) {
    namespace places = apply_adam;
    const auto one_minus = [&](const HloValue& x) { return hlo.Sub(hlo.SplatLike(1, x), x); };
    const auto scalar = [&](places::Input place) { return hlo.In(node.input(place)); };
    const HloValue root = hlo.Unary("sqrt", one_minus(scalar(places::kBeta2Power)));
    alpha_ = hlo.Div(hlo.Mul(scalar(places::kLearningRate), root), one_minus(scalar(places::kBeta1Power)));
    rate1_ = one_minus(Scalar(hlo, node.attrs().GetFloat("beta1")));
    rate2_ = one_minus(Scalar(hlo, node.attrs().GetFloat("beta2")));
  }

  struct State {
    HloValue variable, m, v;
  };
  State Step(const State& old, const HloValue& g) const {
    const HloValue m = hlo_.Add(old.m, Times(hlo_, hlo_.Sub(g, old.m), rate1_));
    const HloValue v = hlo_.Add(old.v, Times(hlo_, hlo_.Sub(hlo_.Mul(g, g), old.v), rate2_));
    const HloValue root = hlo_.Unary("sqrt", v);
    const HloValue step = hlo_.Div(Times(hlo_, m, alpha_), hlo_.Add(root, hlo_.SplatLike(epsilon_, root)));
    return {hlo_.Sub(old.variable, step), m, v};
  }

 private:
  HloBuilder& hlo_;
  const double epsilon_;
  HloValue alpha_, rate1_, rate2_;
};

void EmitAdam(const Node& node, HloBuilder& hlo) {
  namespace places = apply_adam;
  Update update(node, hlo, places::kNumScalars, places::kGroupSize);
  const AdamRule rule(node, hlo);
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const auto in = [&](places::Group place) { return hlo.In(node.input(i + place)); };
    const AdamRule::State now =
        rule.Step({in(places::kVariable), in(places::kM), in(places::kV)}, update.Gradient(i + places::kGradient));
    update.Assign(i + places::kM, now.m);
    update.Assign(i + places::kV, now.v);
    update.Assign(i + places::kVariable, now.variable);
  }
}

// The rows that are named take the step of their summed gradients; the others stay.
void EmitLazyAdam(const Node& node, HloBuilder& hlo) {
  namespace places = apply_lazy_adam;
  Update update(node, hlo, apply_adam::kNumScalars, places::kGroupSize);
  const int first = update.begin();
  const auto in = [&](places::Group place) { return hlo.In(node.input(first + place)); };
  const AdamRule::State old = {in(places::kVariable), in(places::kM), in(places::kV)};
  const HloValue indices = in(places::kIndices), rows = update.Unscaled(first + places::kRows);
  const Shape& shape = old.variable.shape();
  HloCheckNone(node, hlo, update.IfApplies(HloIsOutside(hlo, indices, shape.dim(0))), indices,
               absl::StrCat("row $0 is outside [0, ", shape.dim(0), ")"));
  const HloValue gradient = update.Clipped(HloAddRows(hlo, hlo.SplatLike(0, old.variable), indices, rows));
  const HloType counts{hlo::kF32, {shape.dim(0)}};
  const HloValue times = HloAddRows(hlo, hlo.Splat(0, counts), indices, hlo.Splat(1, {hlo::kF32, indices.shape()}));
  const HloValue named = hlo.BroadcastInDim(hlo.Compare("GT", times, hlo.SplatLike(0, times)), shape, {0});
  const AdamRule::State now = AdamRule(node, hlo).Step(old, gradient);
  update.Assign(first + places::kM, hlo.Select(named, now.m, old.m));
  update.Assign(first + places::kV, hlo.Select(named, now.v, old.v));
  update.Assign(first + places::kVariable, hlo.Select(named, now.variable, old.variable));
}

void EmitMovingAverages(const Node& node, HloBuilder& hlo) {
  namespace places = update_moving_averages;
  Update update(node, hlo, places::kNumScalars, places::kGroupSize);
  const HloValue rate = Scalar(hlo, MovingAverageRate(node.attrs()));
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const HloValue v = hlo.In(node.input(i + places::kVariable));
    update.Assign(i + places::kVariable, hlo.Sub(v, Times(hlo, hlo.Sub(v, update.Unscaled(i + places::kValue)), rate)));
  }
}

void EmitAccumulate(const Node& node, HloBuilder& hlo) {
  namespace places = accumulate;
  const HloValue add = hlo.In(node.input(places::kAdd));
  for (int i = places::kNumScalars; i < node.num_inputs(); i += places::kGroupSize) {
    const Value variable = node.input(i + places::kVariable);
    const HloValue value = hlo.In(node.input(i + places::kValue));
    hlo.Assign(variable, hlo.Select(add, hlo.Add(hlo.In(variable), value), value));
  }
}

void EmitAssignAdd(const Node& node, HloBuilder& hlo) {
  namespace places = assign_add;
  for (int i = 0; i < node.num_inputs(); i += places::kGroupSize) {
    const Value variable = node.input(i + places::kVariable);
    hlo.Assign(variable, hlo.Add(hlo.In(variable), hlo.In(node.input(i + places::kDelta))));
  }
}

void EmitAssignScale(const Node& node, HloBuilder& hlo) {
  const Tensor& factors = node.attrs().Get<Tensor>("factors");
  const int variables = static_cast<int>(factors.num_elements());
  for (int i = 0; i < variables; ++i) {
    const HloValue v = hlo.In(node.input(i)), scaled = hlo.Mul(v, Scalar(hlo, factors.data<float>()[i]));
    const bool guarded = node.num_inputs() > variables;
    hlo.Assign(node.input(i), guarded ? hlo.Select(hlo.In(node.input(variables)), scaled, v) : scaled);
  }
}

bool Register(OpName op, void (*emit)(const Node&, HloBuilder&), std::vector<DType> dtypes = {DType::kFloat32}) {
  return RegisterHloEmitter({.op = op, .dtypes = std::move(dtypes), .emit = emit});
}

const bool registered = Register(op::ApplyGradientDescent, EmitGradientDescent) &&
                        Register(op::ApplyMomentum, EmitMomentum) && Register(op::ApplyAdam, EmitAdam) &&
                        Register(op::ApplyLazyAdam, EmitLazyAdam) &&
                        Register(op::UpdateMovingAverages, EmitMovingAverages) &&
                        Register(op::Accumulate, EmitAccumulate, {DType::kBool}) &&
                        Register(op::AssignAdd, EmitAssignAdd, {DType::kInt64, DType::kFloat32}) &&
                        Register(op::AssignScale, EmitAssignScale);

}  // namespace
}  // namespace official::compute
