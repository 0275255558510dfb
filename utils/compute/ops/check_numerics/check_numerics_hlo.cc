// CheckNumerics in StableHLO.

#include <limits>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/check_numerics/check_numerics.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

void Emit(const Node& node, HloBuilder& hlo) {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  const HloValue x = hlo.In(node.input(0));
  const int64_t count = x.shape().num_elements();
  const HloValue flat = hlo.Convert(hlo.Reshape(x, {count}), hlo::kF32);
  const HloValue finite = hlo.Op("is_finite", {flat}, {hlo::kI1, flat.shape()});
  const HloValue index = hlo.Iota({hlo::kI32, flat.shape()}, 0);
  const HloValue first = hlo.Reduce("minimum", hlo.Select(finite, hlo.SplatLike(kNone, index), index), kNone, {0});
  hlo.Check(node, hlo.Compare("NE", first, hlo.SplatLike(kNone, first)), {first}, absl::StatusCode::kOutOfRange,
            absl::StrCat("element $0 of ", node.input(0).type().ToString(), " is not finite"));
  hlo.Out(node, 0, x);
}

const bool registered = RegisterHloEmitter({.op = op::CheckNumerics, .dtypes = StorageTypes(), .emit = Emit});

}  // namespace
}  // namespace official::compute
