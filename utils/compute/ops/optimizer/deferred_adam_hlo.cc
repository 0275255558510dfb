// Deferred Adam in StableHLO, where no step is deferred: each update moves all rows, as dense Adam does. A compiler
// makes one pass of it, and the state of deferred steps stays zero.

#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/compute/ops/optimizer/update_hlo.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::compute {
namespace {

// All rows are up to date; the ids are checked.
void EmitCatchUp(const Node& node, HloBuilder& hlo) {
  namespace places = deferred_adam;
  for (int i = places::kNumSteps, output = 0; i < node.num_inputs(); i += places::kCatchUpGroupSize, ++output) {
    const HloValue ids = hlo.In(node.input(i + places::kIds));
    const int64_t rows = node.input(i + places::kTable).shape().dim(0);
    HloCheckNone(node, hlo, HloIsOutside(hlo, ids, rows), ids,
                 absl::StrCat("id $0 at position $1 is outside [0, ", rows, ")"));
    hlo.Out(node, output, ids);
  }
}

void EmitApply(const Node& node, HloBuilder& hlo) {
  namespace places = deferred_adam;
  HloUpdate update(node, hlo, apply_adam::kNumScalars, places::kApplyGroupSize);
  const HloAdamRule rule(node, hlo);
  for (int i = update.begin() + places::kNumSteps; i < update.end(); i += update.step()) {
    const auto in = [&](places::Group place) { return hlo.In(node.input(i + place)); };
    const HloAdamRule::State old = {in(places::kTable), in(places::kM), in(places::kV)};
    // The sum of a row first, as in dense Adam.
    const HloValue sum = HloAddRows(hlo, hlo.SplatLike(0, old.variable), in(places::kIds), in(places::kRows));
    const HloValue gradient = update.Clipped(update.Unscale(sum));
    const HloAdamRule::State now = rule.Step(old, gradient);
    update.Assign(i + places::kM, now.m);
    update.Assign(i + places::kV, now.v);
    update.Assign(i + places::kTable, now.variable);
  }
}

void EmitSettle(const Node&, HloBuilder&) {}

const bool registered[] = {
    RegisterHloEmitter({.op = op::CatchUpRows, .dtypes = {DType::kFloat32}, .emit = EmitCatchUp}),
    RegisterHloEmitter({.op = op::ApplyDeferredAdam, .dtypes = {DType::kFloat32}, .emit = EmitApply}),
    RegisterHloEmitter({.op = op::SettleRows, .dtypes = {DType::kFloat32}, .emit = EmitSettle}),
};

}  // namespace
}  // namespace official::compute
