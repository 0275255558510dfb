// The ops of a loss scale in StableHLO.

#include <limits>
#include <numeric>
#include <vector>

#include "utils/compute/ops/loss_scale/loss_scale.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// Fails the run as kernels do; which element it is would cost another pass over all gradients.
void EmitAllFinite(const Node& node, HloBuilder& hlo) {
  const bool scaled = node.attrs().GetBool("scaled");
  const int first = scaled ? all_finite::kNumScalars : 0;
  const HloType count{hlo::kI32, {}};
  HloValue finite = hlo.Splat(1, {hlo::kI1, {}}), place = hlo.Splat(0, count);  // of the first input that is not
  for (int i = node.num_inputs(); i-- > first;) {
    const HloValue x = hlo.In(node.input(i));
    std::vector<int64_t> dims(x.shape().rank());
    std::iota(dims.begin(), dims.end(), 0);
    const HloValue here = hlo.Reduce("and", hlo.Op("is_finite", {x}, {hlo::kI1, x.shape()}), 1, dims);
    place = hlo.Select(here, place, hlo.Splat(i, count));
    finite = hlo.Binary("and", finite, here);
  }
  HloValue failed = hlo.Unary("not", finite);
  if (scaled) {
    const HloValue scale = hlo.In(node.input(all_finite::kLossScale));
    const HloValue is_large = hlo.Compare("GT", scale, hlo.SplatLike(1, scale));  // NaN is not
    failed = hlo.Binary("and", failed, hlo.Unary("not", is_large));
  }
  hlo.Check(node, failed, {place}, absl::StatusCode::kOutOfRange, "an element of input $0 is not finite");
  hlo.Out(node, 0, finite);
}

void EmitUpdateLossScale(const Node& node, HloBuilder& hlo) {
  namespace places = update_loss_scale;
  const Value scale_variable = node.input(places::kLossScale), steps_variable = node.input(places::kGoodSteps);
  const HloValue scale = hlo.In(scale_variable), steps = hlo.In(steps_variable);
  const HloValue finite = hlo.In(node.input(places::kAllFinite));
  const HloValue one = hlo.SplatLike(1, scale), two = hlo.SplatLike(2, scale);
  const HloValue more = hlo.Add(steps, hlo.SplatLike(1, steps));
  const HloValue grows =
      hlo.Compare("GE", more, hlo.SplatLike(static_cast<double>(node.attrs().GetInt("growth_steps")), more));
  const HloValue doubled = hlo.Mul(scale, two);
  const HloValue largest = hlo.SplatLike(std::numeric_limits<float>::max(), scale);
  const HloValue grown = hlo.Select(hlo.Binary("and", grows, hlo.Compare("LE", doubled, largest)), doubled, scale);
  const HloValue none = hlo.SplatLike(0, steps);
  hlo.Assign(scale_variable, hlo.Select(finite, grown, hlo.Binary("maximum", hlo.Div(scale, two), one)));
  hlo.Assign(steps_variable, hlo.Select(hlo.Binary("and", finite, hlo.Unary("not", grows)), more, none));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::AllFinite, .dtypes = {DType::kFloat32}, .emit = EmitAllFinite}),
    RegisterHloEmitter({.op = op::UpdateLossScale, .dtypes = {DType::kFloat32}, .emit = EmitUpdateLossScale}),
};

}  // namespace
}  // namespace official::compute
