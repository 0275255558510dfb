// L2Loss in StableHLO.

#include <numeric>
#include <vector>

#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

void Emit(const Node& node, HloBuilder& hlo) {
  HloValue sum = hlo.Splat(0, {hlo::kF32, {}});
  for (const Value& v : node.inputs()) {
    const HloValue x = hlo.In(v);
    std::vector<int64_t> dims(x.shape().rank());
    std::iota(dims.begin(), dims.end(), 0);
    sum = hlo.Add(sum, hlo.Sum(hlo.Mul(x, x), dims));
  }
  hlo.Out(node, 0, hlo.Mul(sum, hlo.SplatLike(0.5, sum)));
}

const bool registered = RegisterHloEmitter({.op = op::L2Loss, .dtypes = {DType::kFloat32}, .emit = Emit});

}  // namespace
}  // namespace official::compute
