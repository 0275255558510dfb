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
  const HloValue is_first = hlo.Compare("EQ", index, hlo.Broadcast(first, index.shape()));
  const HloValue bad = hlo.Reduce("add", hlo.Select(is_first, flat, hlo.SplatLike(0, flat)), 0, {0});
  // Numbers of a message are whole ones: there is a check for each kind of element.
  const auto check = [&](const HloValue& failed, const char* what) {
    hlo.Check(node, failed, {first}, absl::StatusCode::kOutOfRange,
              absl::StrCat("element $0 of ", node.input(0).type().ToString(), " is ", what));
  };
  const double infinity = std::numeric_limits<double>::infinity();
  check(hlo.Compare("NE", bad, bad), "nan");
  check(hlo.Compare("EQ", bad, hlo.SplatLike(infinity, bad)), "inf");
  check(hlo.Compare("EQ", bad, hlo.SplatLike(-infinity, bad)), "-inf");
  hlo.Out(node, 0, x);
}

const bool registered = RegisterHloEmitter({.op = op::CheckNumerics, .dtypes = StorageTypes(), .emit = Emit});

}  // namespace
}  // namespace official::compute
