// The optimizers in StableHLO. Each variable of an update is computed by itself; the compiler fuses what it likes.

#include <utility>
#include <vector>

#include "utils/compute/ops/optimizer/moving_average.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/optimizer/update_hlo.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

void EmitGradientDescent(const Node& node, HloBuilder& hlo) {
  namespace places = apply_gradient_descent;
  HloUpdate update(node, hlo, places::kNumScalars, places::kGroupSize);
  const HloValue lr = hlo.In(node.input(places::kLearningRate));
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const HloValue v = hlo.In(node.input(i + places::kVariable));
    update.Assign(i + places::kVariable, hlo.Sub(v, HloTimes(hlo, update.Gradient(i + places::kGradient), lr)));
  }
}

void EmitMomentum(const Node& node, HloBuilder& hlo) {
  namespace places = apply_momentum;
  HloUpdate update(node, hlo, places::kNumScalars, places::kGroupSize);
  const HloValue lr = hlo.In(node.input(places::kLearningRate));
  const HloValue momentum = HloScalar(hlo, node.attrs().GetFloat("momentum"));
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const HloValue v = hlo.In(node.input(i + places::kVariable)), g = update.Gradient(i + places::kGradient);
    const HloValue a = hlo.Add(HloTimes(hlo, hlo.In(node.input(i + places::kMomentum)), momentum), g);
    HloValue step = HloTimes(hlo, a, lr);
    if (node.attrs().GetBool("nesterov")) {
      step = hlo.Add(HloTimes(hlo, g, lr), HloTimes(hlo, HloTimes(hlo, a, momentum), lr));
    }
    update.Assign(i + places::kMomentum, a);
    update.Assign(i + places::kVariable, hlo.Sub(v, step));
  }
}

void EmitAdam(const Node& node, HloBuilder& hlo) {
  namespace places = apply_adam;
  HloUpdate update(node, hlo, places::kNumScalars, places::kGroupSize);
  const HloAdamRule rule(node, hlo);
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const auto in = [&](places::Group place) { return hlo.In(node.input(i + place)); };
    const HloAdamRule::State now =
        rule.Step({in(places::kVariable), in(places::kM), in(places::kV)}, update.Gradient(i + places::kGradient));
    update.Assign(i + places::kM, now.m);
    update.Assign(i + places::kV, now.v);
    update.Assign(i + places::kVariable, now.variable);
  }
}

void EmitMovingAverages(const Node& node, HloBuilder& hlo) {
  namespace places = update_moving_averages;
  HloUpdate update(node, hlo, places::kNumScalars, places::kGroupSize);
  const HloValue rate = HloScalar(hlo, MovingAverageRate(node.attrs()));
  for (int i = update.begin(); i < update.end(); i += update.step()) {
    const HloValue v = hlo.In(node.input(i + places::kVariable));
    update.Assign(i + places::kVariable,
                  hlo.Sub(v, HloTimes(hlo, hlo.Sub(v, update.Unscaled(i + places::kValue)), rate)));
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
    const HloValue v = hlo.In(node.input(i)), scaled = hlo.Mul(v, HloScalar(hlo, factors.data<float>()[i]));
    const bool guarded = node.num_inputs() > variables;
    hlo.Assign(node.input(i), guarded ? hlo.Select(hlo.In(node.input(variables)), scaled, v) : scaled);
  }
}

bool Register(OpName op, void (*emit)(const Node&, HloBuilder&), std::vector<DType> dtypes = {DType::kFloat32}) {
  return RegisterHloEmitter({.op = op, .dtypes = std::move(dtypes), .emit = emit});
}

const bool registered = Register(op::ApplyGradientDescent, EmitGradientDescent) &&
                        Register(op::ApplyMomentum, EmitMomentum) && Register(op::ApplyAdam, EmitAdam) &&
                        Register(op::UpdateMovingAverages, EmitMovingAverages) &&
                        Register(op::Accumulate, EmitAccumulate, {DType::kBool}) &&
                        Register(op::AssignAdd, EmitAssignAdd, {DType::kInt64, DType::kFloat32}) &&
                        Register(op::AssignScale, EmitAssignScale);

}  // namespace
}  // namespace official::compute
