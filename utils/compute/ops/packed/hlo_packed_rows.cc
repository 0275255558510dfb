#include "utils/compute/ops/packed/hlo_packed_rows.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
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
    : node_(node), hlo_(hlo), offsets_(hlo.In(node.input(offsets_input))) {
  CheckOffsets(node, hlo, offsets_, num_rows, what);
  // The last sequence that does not begin behind the row, from the offsets up to the row.
  const Shape table{num_rows, offsets_.shape().dim(0)};
  const HloValue all = hlo.BroadcastInDim(offsets_, table, {1});
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

// One computation for all dropouts of the graph, of which there are many: the text of Philox is long.
std::vector<HloValue> HloPackedRows::KeysOfStreams(Value random_state, absl::Span<const uint32_t> streams) const {
  HloBuilder& hlo = hlo_;
  const HloValue state = hlo.In(random_state);
  const Shape shape{static_cast<int64_t>(streams.size()), sequence_.shape().dim(0)};
  const auto of_state = [&](int64_t i, const char* element) {
    return hlo.Broadcast(hlo.Convert(hlo.Reshape(hlo.Slice(state, {i}, {i + 1}), {}), element), shape);
  };
  std::vector<HloValue> numbers;
  for (const uint32_t stream : streams) numbers.push_back(hlo.Splat(stream, {hlo::kUi32, {1}}));
  const HloValue stream = hlo.BroadcastInDim(hlo.Concatenate(numbers, 0), shape, {0});
  const HloValue sequence = hlo.BroadcastInDim(hlo.Convert(sequence_, hlo::kUi64), shape, {1});
  const HloValue example = hlo.Add(of_state(2, hlo::kUi64), sequence), seed = of_state(0, hlo::kUi64);
  const std::array<HloValue, 4> words =
      HloPhilox(hlo, {HloLowWord(hlo, seed), HloHighWord(hlo, seed)},
                {HloLowWord(hlo, example), HloHighWord(hlo, example), stream, of_state(1, hlo::kUi32)});
  return {words[0], words[1], words[2]};
}

std::vector<HloValue> HloPackedRows::Keys(Value random_state) const {
  std::set<uint32_t> all;
  for (const auto& node : node_.graph().nodes()) {
    if (node->attrs().Has("dropout_rate")) all.insert(static_cast<uint32_t>(node->attrs().GetInt("stream")));
  }
  const std::vector<uint32_t> streams(all.begin(), all.end());
  std::vector<HloValue>& shared =
      hlo_.Shared(absl::StrCat("sequence keys of ", offsets_.name, " for ", sequence_.shape().dim(0), " rows from ",
                               hlo_.In(random_state).name));
  if (shared.empty()) shared = KeysOfStreams(random_state, streams);
  const auto stream = static_cast<uint32_t>(node_.attrs().GetInt("stream"));
  const int64_t place = std::lower_bound(streams.begin(), streams.end(), stream) - streams.begin();
  const int64_t num_rows = sequence_.shape().dim(0);
  std::vector<HloValue> keys;
  for (const HloValue& words : shared) {
    keys.push_back(hlo_.Reshape(hlo_.Slice(words, {place, 0}, {place + 1, num_rows}), {num_rows}));
  }
  return keys;
}

HloValue HloPackedRows::DropFactors(Value random_state, int64_t columns) const {
  const HloValue factors = DropFactors(Keys(random_state), 1, hlo_.Iota({hlo::kI32, {columns}}, 0));
  return hlo_.Reshape(factors, {sequence_.shape().dim(0), columns});
}

// Each element computes all words of its draw and takes one, so that nothing is moved between elements.
HloValue HloPackedRows::DropFactors(absl::Span<const HloValue> keys, int64_t planes, const HloValue& columns) const {
  HloBuilder& hlo = hlo_;
  // PackedDraw
  const HloValue column = hlo.Convert(columns, hlo::kUi32);
  const auto divide = [&](const HloValue& x, int64_t by) { return hlo.Div(x, hlo.SplatLike(by, x)); };
  const auto remainder = [&](const HloValue& x, int64_t by) {
    return hlo.Binary("remainder", x, hlo.SplatLike(by, x));
  };
  const HloValue block = divide(column, kDrawColumns), lane = remainder(column, kDrawLanes);
  const HloValue draw = hlo.Add(hlo.Mul(block, hlo.SplatLike(kDrawLanes, block)), lane);
  const HloType type{hlo::kUi32, {planes, sequence_.shape().dim(0), columns.shape().dim(0)}};
  const auto of_row = [&](const HloValue& per_row) { return hlo.BroadcastInDim(per_row, type.shape, {1}); };
  const auto of_column = [&](const HloValue& per_column) { return hlo.BroadcastInDim(per_column, type.shape, {2}); };
  const std::array<HloValue, 4> words =
      HloPhilox(hlo, {of_row(keys[0]), of_row(keys[1])},
                {of_column(draw), of_row(hlo.Convert(position_, hlo::kUi32)), hlo.Iota(type, 0), of_row(keys[2])});
  const HloValue number = of_column(remainder(divide(column, kDrawLanes), 4));
  HloValue word = words[0];
  for (int k = 1; k < 4; ++k) word = hlo.Select(hlo.Compare("EQ", number, hlo.SplatLike(k, number)), words[k], word);
  const DropoutRate rate(node_.attrs().GetFloat("dropout_rate"));
  const HloType factors{hlo::kF32, type.shape};
  HloValue is_kept = hlo.Compare("GE", word, hlo.SplatLike(rate.threshold, word));
  if (hlo.options().fuses_into_products) is_kept = hlo.Barrier({is_kept})[0];
  return hlo.Select(is_kept, hlo.Splat(rate.scale, factors), hlo.Splat(0, factors));
}

}  // namespace official::compute
