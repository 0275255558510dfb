// The sums over devices in StableHLO. The module does not say how many devices there are: all that run it.

#include <vector>

#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// A pack is one op. The compiler decides when its sum begins.
void EmitStart(const Node& node, HloBuilder& hlo) {
  std::vector<HloValue> pack;
  for (const Value& v : node.inputs()) pack.push_back(hlo.In(v));
  const std::vector<HloValue> sums = hlo.SumOverDevices(pack);
  for (int i = 0; i < node.num_inputs(); ++i) hlo.Out(node, i, sums[i]);
}

void EmitDone(const Node& node, HloBuilder& hlo) {
  for (int i = 0; i < node.num_inputs(); ++i) hlo.Out(node, i, hlo.In(node.input(i)));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::AllReduceStart, .dtypes = {DType::kFloat32}, .emit = EmitStart}),
    RegisterHloEmitter({.op = op::AllReduceDone, .dtypes = {DType::kFloat32}, .emit = EmitDone}),
};

}  // namespace
}  // namespace official::compute
