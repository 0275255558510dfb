// Dropout in StableHLO: the random numbers are those of core/random.h, bit for bit, computed with integer ops.

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/packed/hlo_packed_rows.h"
#include "utils/compute/ops/packed/packed_draws.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_random.h"

namespace official::compute {
namespace {

void EmitDropout(const Node& node, HloBuilder& hlo) {
  const HloValue x = hlo.InFloat(node.input(dropout::kX)), state = hlo.In(node.input(dropout::kRandomState));
  const int64_t count = x.shape().num_elements();
  if (count == 0) return hlo.Out(node, dropout::kY, x);
  const auto of_state = [&](int64_t i, const char* element) {
    return hlo.Convert(hlo.Reshape(hlo.Slice(state, {i}, {i + 1}), {}), element);
  };
  // Element number n of the global batch takes word n % 4 of draw n / 4.
  const auto per_example = static_cast<double>(count / x.shape().dim(0));
  const HloValue offset = hlo.Mul(of_state(2, hlo::kUi64), hlo.Splat(per_example, {hlo::kUi64, {}}));
  const HloValue four = hlo.SplatLike(4, offset);
  const HloType draws{hlo::kUi64, {(count + 3) / 4 + 1}};
  const HloValue draw = hlo.Add(hlo.Iota(draws, 0), hlo.Broadcast(hlo.Div(offset, four), draws.shape));
  const auto stream = static_cast<uint32_t>(node.attrs().GetInt("stream"));
  const HloValue seed = hlo.Broadcast(of_state(0, hlo::kUi64), draws.shape);
  const std::array<HloValue, 4> words =
      HloPhilox(hlo, {HloLowWord(hlo, seed), HloHighWord(hlo, seed)},
                {HloLowWord(hlo, draw), HloHighWord(hlo, draw), hlo.Splat(stream, {hlo::kUi32, draws.shape}),
                 hlo.Broadcast(of_state(1, hlo::kUi32), draws.shape)});
  const HloValue row = hlo.Reshape(HloStack(hlo, words, 1), {4 * draws.shape.dim(0)});
  const HloValue first = hlo.Convert(hlo.Binary("remainder", offset, four), hlo::kI64);
  const HloValue word =
      hlo.Op("dynamic_slice", {row, first}, {hlo::kUi32, {count}}, absl::StrCat("slice_sizes = ", HloInts({count})));
  const DropoutRate rate(node.attrs().GetFloat("rate"));
  const HloValue kept = hlo.Compare("GE", word, hlo.SplatLike(rate.threshold, word));
  hlo.Out(node, dropout::kY,
          hlo.Select(hlo.Reshape(kept, x.shape()), hlo.Mul(x, hlo.SplatLike(rate.scale, x)), hlo.SplatLike(0, x)));
}

void EmitPackedDropout(const Node& node, HloBuilder& hlo) {
  namespace places = packed_dropout;
  const HloValue x = hlo.InFloat(node.input(places::kX));
  const HloPackedRows rows(node, hlo, places::kOffsets, x.shape().dim(0), "row");
  const HloValue factors = rows.DropFactors(node.input(places::kRandomState), x.shape().dim(1));
  hlo.Out(node, places::kY, rows.ClearPadding(hlo.Mul(x, factors)));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::Dropout, .dtypes = StorageTypes(), .emit = EmitDropout}),
    RegisterHloEmitter({.op = op::PackedDropout, .dtypes = StorageTypes(), .emit = EmitPackedDropout}),
};

}  // namespace
}  // namespace official::compute
