// ArgMax and TopK in StableHLO.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/rows/rows.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_random.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::compute {
namespace {

// The first index whose element is the largest. NaN is passed over, unless it comes first.
void EmitArgMax(const Node& node, HloBuilder& hlo) {
  HloValue x = hlo.In(node.input(0));
  const int last = x.shape().rank() - 1;
  const bool floating = IsFloating(node.input(0).dtype());
  const double lowest =
      floating ? -std::numeric_limits<double>::infinity() : double{std::numeric_limits<int32_t>::lowest()};
  std::vector<int64_t> begin(last + 1, 0), end(x.shape().dims().begin(), x.shape().dims().end());
  end.back() = 1;
  const HloValue is_nan = hlo.Compare("NE", x, x);
  const HloValue begins_with_nan = hlo.Reshape(hlo.Slice(is_nan, begin, end), node.output_types()[0].shape);
  x = hlo.Select(is_nan, hlo.SplatLike(lowest, x), x);
  const HloValue max = hlo.Reduce("maximum", x, lowest, {last});
  std::vector<int64_t> rows;
  for (int i = 0; i < last; ++i) rows.push_back(i);
  const HloValue is_max = hlo.Compare("EQ", x, hlo.BroadcastInDim(max, x.shape(), rows));
  const HloValue columns = hlo.Iota({hlo::kI64, x.shape()}, last);
  const double behind = static_cast<double>(x.shape().dim(-1)) - 1;
  const HloValue first =
      hlo.Reduce("minimum", hlo.Select(is_max, columns, hlo.SplatLike(behind, columns)), behind, {last});
  hlo.Out(node, 0, hlo.Select(begins_with_nan, hlo.SplatLike(0, first), first));
}

// OrderKey of each element of float32 [rows, columns], as ui64.
HloValue KeysOf(HloBuilder& hlo, const HloValue& x) {
  const HloType words{hlo::kUi32, x.shape()};
  const HloValue zero = hlo.SplatLike(0, x);
  const HloValue without_sign = hlo.Select(hlo.Compare("EQ", x, zero), zero, x);  // of zeros
  const HloValue bits = hlo.Op("bitcast_convert", {without_sign}, words);
  const HloValue sign = hlo.Splat(0x80000000u, words);
  const HloValue is_negative = hlo.Compare("GE", bits, sign);
  HloValue ordered = hlo.Select(is_negative, hlo.Unary("not", bits), hlo.Binary("or", bits, sign));
  ordered = hlo.Select(hlo.Compare("EQ", x, x), ordered, hlo.SplatLike(0, ordered));
  const HloValue high = hlo.Convert(ordered, hlo::kUi64);
  return hlo.Binary("or", hlo.Binary("shift_left", high, hlo.SplatLike(32, high)),
                    hlo.Convert(hlo.Unary("not", hlo.Iota(words, 1)), hlo::kUi64));
}

// Up to so many of the largest are found one after another, each in a pass over the row, instead of by sorting all of
// it, which takes a comparison of keys for each of its elements many times over.
constexpr int64_t kMostPasses = 16;

// The k largest of the keys [rows, columns], which differ and are above 0, of each row, the largest first.
HloValue LargestByPasses(HloBuilder& hlo, const HloValue& keys, int64_t k) {
  const HloValue zeros = hlo.SplatLike(0, keys);
  std::vector<HloValue> largest;
  HloValue rest = keys;
  for (int64_t i = 0; i < k; ++i) {
    const HloValue max = hlo.Reduce("maximum", rest, 0, {1});
    largest.push_back(hlo.Reshape(max, {max.shape().dim(0), 1}));
    const HloValue is_smaller = hlo.Compare("LT", keys, hlo.BroadcastInDim(max, keys.shape(), {0}));
    rest = hlo.Select(is_smaller, keys, zeros);
  }
  return hlo.Concatenate(largest, 1);
}

HloValue LargestBySort(HloBuilder& hlo, const HloValue& keys, int64_t k) {
  const std::string key = absl::StrCat("tensor<", hlo::kUi64, ">");
  const HloValue sorted =
      hlo.Op("sort", {keys}, keys.type, "dimension = 1 : i64, is_stable = false",
             absl::StrCat("{\n    ^bb0(%a: ", key, ", %b: ", key, "):\n      %c = \"stablehlo.compare\"(%a, %b) ",
                          "{comparison_direction = #stablehlo<comparison_direction GT>, compare_type = ",
                          "#stablehlo<comparison_type UNSIGNED>} : (", key, ", ", key,
                          ") -> tensor<i1>\n      \"stablehlo.return\"(%c) : (tensor<i1>) -> ()\n    }"));
  return hlo.Slice(sorted, {0, 0}, {keys.shape().dim(0), k});
}

void EmitTopK(const Node& node, HloBuilder& hlo) {
  const Rows rows = RowsOf(node.input(top_k::kX).shape());
  const int64_t k = node.attrs().GetInt("k");
  const HloValue x = hlo.Reshape(hlo.In(node.input(top_k::kX)), {rows.count, rows.size});
  const HloValue keys = KeysOf(hlo, hlo.Convert(x, hlo::kF32));
  const HloValue largest = k <= kMostPasses ? LargestByPasses(hlo, keys, k) : LargestBySort(hlo, keys, k);
  const HloValue first = hlo.Unary("not", HloLowWord(hlo, largest));
  const HloValue indices = hlo.Convert(first, hlo::kI32);
  const HloValue begin = hlo.Mul(hlo.Iota(indices.type, 0), hlo.SplatLike(static_cast<double>(rows.size), indices));
  const HloValue places = hlo.Reshape(hlo.Add(begin, indices), {rows.count * k});
  const HloValue flat = hlo.Reshape(x, {rows.count * rows.size});
  hlo.Out(node, top_k::kValues, hlo.Reshape(HloRowsAt(hlo, flat, places), node.output_types()[top_k::kValues].shape));
  hlo.Out(node, top_k::kIndices, hlo.Reshape(indices, node.output_types()[top_k::kIndices].shape));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::ArgMax, .dtypes = StorageTypesAnd({DType::kInt32}), .emit = EmitArgMax}),
    RegisterHloEmitter({.op = op::TopK, .dtypes = StorageTypes(), .emit = EmitTopK}),
};

}  // namespace
}  // namespace official::compute
