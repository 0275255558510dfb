// The sums over devices in StableHLO. The module does not say how many devices there are: all that run it.

#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// The compiler decides when a sum begins.
void EmitStart(const Node& node, HloBuilder& hlo) {
  for (int i = 0; i < node.num_inputs(); ++i) hlo.Out(node, i, hlo.SumOverDevices(hlo.In(node.input(i))));
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
