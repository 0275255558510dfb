#include "utils/compute/ops/packed/hlo_packed_rows.h"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/packed/packed_draws.h"
#include "utils/compute/pjrt/hlo_random.h"

namespace official::compute {
namespace {

// The value of a vector at an index, a scalar that may be one of no element (then 0).
HloValue At(HloBuilder& hlo, const HloValue& vector, const HloValue& index) {
  const HloValue places = hlo.Iota({index.element(), vector.shape()}, 0);
  const HloValue is_here = hlo.Compare("EQ", places, hlo.Broadcast(index, vector.shape()));
  return hlo.Reduce("add", hlo.Select(is_here, vector, hlo.SplatLike(0, vector)), 0, {0});
}

void CheckOffsets(const Node& node, HloBuilder& hlo, const HloValue& offsets, int64_t num_rows,
                  absl::string_view what) {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  const int64_t batch = offsets.shape().dim(0) - 1;
  const HloValue zeroth = hlo.Reshape(hlo.Slice(offsets, {0}, {1}), {});
  hlo.Check(node, hlo.Compare("NE", zeroth, hlo.SplatLike(0, zeroth)), {zeroth}, absl::StatusCode::kInvalidArgument,
            absl::StrCat(what, " offset 0 is $0, not 0"));
  if (batch == 0) return;
  const HloValue begin = hlo.Slice(offsets, {0}, {batch}), end = hlo.Slice(offsets, {1}, {batch + 1});
  const HloValue wrong = hlo.Binary("or", hlo.Compare("LT", end, begin),
                                    hlo.Compare("GT", end, hlo.SplatLike(static_cast<double>(num_rows), end)));
  const HloValue places = hlo.Iota(begin.type, 0);
  const HloValue first = hlo.Reduce("minimum", hlo.Select(wrong, places, hlo.SplatLike(kNone, places)), kNone, {0});
  const HloValue number = hlo.Add(first, hlo.SplatLike(1, first));
  hlo.Check(node, hlo.Compare("NE", first, hlo.SplatLike(kNone, first)),
            {number, At(hlo, end, first), At(hlo, begin, first)}, absl::StatusCode::kInvalidArgument,
            absl::StrCat(what, " offset $0 is $1, outside [$2, ", num_rows, "]"));
}

}  // namespace

HloPackedRows::HloPackedRows(const Node& node, HloBuilder& hlo, int offsets_input, int64_t num_rows,
                             absl::string_view what)
    : node_(node), hlo_(hlo) {
  const HloValue offsets = hlo.In(node.input(offsets_input));
  CheckOffsets(node, hlo, offsets, num_rows, what);
  // The last sequence that does not begin behind the row, from the offsets up to the row.
  const Shape table{num_rows, offsets.shape().dim(0)};
  const HloValue all = hlo.BroadcastInDim(offsets, table, {1});
  const HloValue reached = hlo.Compare("LE", all, hlo.Iota({hlo::kI32, table}, 0));
  const HloValue count = hlo.Reduce("add", hlo.Convert(reached, hlo::kI32), 0, {1});
  sequence_ = hlo.Sub(count, hlo.SplatLike(1, count));
  const HloValue begin = hlo.Reduce("maximum", hlo.Select(reached, all, hlo.SplatLike(0, all)), 0, {1});
  position_ = hlo.Sub(hlo.Iota(begin.type, 0), begin);
  padding_ = hlo.Compare("EQ", sequence_, hlo.SplatLike(static_cast<double>(table.dim(1)) - 1, sequence_));
}

HloValue HloPackedRows::Repeat(const HloValue& per_row, const Shape& shape) const {
  return hlo_.BroadcastInDim(per_row, shape, {0});
}

HloValue HloPackedRows::ClearPadding(const HloValue& x) const {
  return hlo_.Select(Repeat(padding_, x.shape()), hlo_.SplatLike(0, x), x);
}

HloValue HloPackedRows::DropFactors(Value random_state, int64_t columns) const {
  return hlo_.Reshape(DropFactors(random_state, 1, columns), {sequence_.shape().dim(0), columns});
}

HloValue HloPackedRows::DropFactors(Value random_state, int64_t planes, int64_t columns) const {
  HloBuilder& hlo = hlo_;
  const HloValue state = hlo.In(random_state);
  const int64_t num_rows = sequence_.shape().dim(0);
  const auto of_state = [&](int64_t i, const char* element) {
    const HloValue value = hlo.Convert(hlo.Reshape(hlo.Slice(state, {i}, {i + 1}), {}), element);
    return hlo.Broadcast(value, {num_rows});
  };
  const auto stream = static_cast<uint32_t>(node_.attrs().GetInt("stream"));
  const HloValue example = hlo.Add(of_state(2, hlo::kUi64), hlo.Convert(sequence_, hlo::kUi64));
  // KeyOfSequence
  const std::array<HloValue, 4> of_sequence =
      HloPhilox(hlo, of_state(0, hlo::kUi64),
                {HloLowWord(hlo, example), HloHighWord(hlo, example), hlo.Splat(stream, {hlo::kUi32, {num_rows}}),
                 of_state(1, hlo::kUi32)});
  const HloValue high = hlo.Convert(of_sequence[1], hlo::kUi64);
  const HloValue key = hlo.Binary("or", hlo.Convert(of_sequence[0], hlo::kUi64),
                                  hlo.Binary("shift_left", high, hlo.SplatLike(32, high)));
  // PackedDraw: blocks of kDrawLanes draws, whose words are kDrawColumns columns.
  const int64_t blocks = (columns + kDrawColumns - 1) / kDrawColumns;
  const Shape flat{planes, num_rows, blocks * kDrawLanes}, draws{planes, num_rows, blocks, kDrawLanes};
  const HloType draw_type{hlo::kUi32, flat};
  const auto repeat = [&](const HloValue& per_row) {
    return hlo.Reshape(hlo.BroadcastInDim(per_row, flat, {1}), draws);
  };
  const std::array<HloValue, 4> words =
      HloPhilox(hlo, repeat(key),
                {hlo.Reshape(hlo.Iota(draw_type, 2), draws), repeat(hlo.Convert(position_, hlo::kUi32)),
                 hlo.Reshape(hlo.Iota(draw_type, 0), draws), repeat(of_sequence[2])});
  const HloValue in_order = hlo.Reshape(HloStack(hlo, words, 3), {planes, num_rows, blocks * kDrawColumns});
  const HloValue word = hlo.Slice(in_order, {0, 0, 0}, {planes, num_rows, columns});
  const DropoutRate rate(node_.attrs().GetFloat("dropout_rate"));
  const HloType factors{hlo::kF32, word.shape()};
  return hlo.Select(hlo.Compare("GE", word, hlo.SplatLike(rate.threshold, word)), hlo.Splat(rate.scale, factors),
                    hlo.Splat(0, factors));
}

}  // namespace official::compute
