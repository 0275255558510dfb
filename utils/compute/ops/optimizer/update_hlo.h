// The common part of the optimizers in StableHLO.
#pragma once

#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/optimizer/clip.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/pjrt/hlo_builder.h"

namespace official::compute {

inline HloValue HloScalar(HloBuilder& hlo, double value) { return hlo.Splat(value, {hlo::kF32, {}}); }

// x times a float32 scalar.
inline HloValue HloTimes(HloBuilder& hlo, const HloValue& x, const HloValue& scalar) {
  return hlo.Mul(x, hlo.Broadcast(scalar, x.shape()));
}

// The tensors of an update: groups behind the scalars and, in a guarded update, behind the guard.
class HloUpdate {
 public:
  HloUpdate(const Node& node, HloBuilder& hlo, int num_scalars, int group_size)
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
  HloValue Unscaled(int input) { return Unscale(hlo_.In(node_.input(input))); }
  // x without the loss scale.
  HloValue Unscale(const HloValue& x) {
    if (!guarded_) return x;
    const HloValue scale = hlo_.In(node_.input(num_scalars_ + update_guard::kLossScale));
    return hlo_.Div(x, hlo_.Broadcast(scale, x.shape()));
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

// The rule of Adam for a node's scalars and attributes.
class HloAdamRule {
 public:
  HloAdamRule(const Node& node, HloBuilder& hlo) : hlo_(hlo), epsilon_(node.attrs().GetFloat("epsilon")) {
    namespace places = apply_adam;
    const auto one_minus = [&](const HloValue& x) { return hlo.Sub(hlo.SplatLike(1, x), x); };
    const auto scalar = [&](places::Input place) { return hlo.In(node.input(place)); };
    const HloValue root = hlo.Unary("sqrt", one_minus(scalar(places::kBeta2Power)));
    alpha_ = hlo.Div(hlo.Mul(scalar(places::kLearningRate), root), one_minus(scalar(places::kBeta1Power)));
    rate1_ = one_minus(HloScalar(hlo, node.attrs().GetFloat("beta1")));
    rate2_ = one_minus(HloScalar(hlo, node.attrs().GetFloat("beta2")));
  }

  struct State {
    HloValue variable, m, v;
  };
  State Step(const State& old, const HloValue& g) const {
    const HloValue m = hlo_.Add(old.m, HloTimes(hlo_, hlo_.Sub(g, old.m), rate1_));
    const HloValue v = hlo_.Add(old.v, HloTimes(hlo_, hlo_.Sub(hlo_.Mul(g, g), old.v), rate2_));
    const HloValue root = hlo_.Unary("sqrt", v);
    const HloValue step = hlo_.Div(HloTimes(hlo_, m, alpha_), hlo_.Add(root, hlo_.SplatLike(epsilon_, root)));
    return {hlo_.Sub(old.variable, step), m, v};
  }

 private:
  HloBuilder& hlo_;
  const double epsilon_;
  HloValue alpha_, rate1_, rate2_;
};

}  // namespace official::compute
