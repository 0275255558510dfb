#include "utils/compute/pjrt/hlo_rows.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::compute {
namespace {

// "1, 2, ..., rank - 1"
std::string DimsBehindFirst(int rank) {
  std::vector<int> dims;
  for (int i = 1; i < rank; ++i) dims.push_back(i);
  return absl::StrJoin(dims, ", ");
}

// The form in which gather and scatter take indices.
HloValue AsColumn(HloBuilder& hlo, const HloValue& indices) {
  return hlo.Reshape(indices, {indices.shape().dim(0), 1});
}

}  // namespace

HloValue HloIsOutside(HloBuilder& hlo, const HloValue& x, int64_t limit) {
  return hlo.Binary("or", hlo.Compare("LT", x, hlo.SplatLike(0, x)),
                    hlo.Compare("GE", x, hlo.SplatLike(static_cast<double>(limit), x)));
}

void HloCheckNone(const Node& node, HloBuilder& hlo, const HloValue& wrong, const HloValue& shown,
                  absl::string_view message, int64_t columns) {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  const HloValue places = hlo.Iota({hlo::kI32, wrong.shape()}, 0), none = hlo.SplatLike(kNone, places);
  const HloValue first = hlo.Reduce("minimum", hlo.Select(wrong, places, none), kNone, {0});
  const HloValue is_first = hlo.Compare("EQ", places, hlo.Broadcast(first, places.shape()));
  const HloValue value = hlo.Reduce("add", hlo.Select(is_first, shown, hlo.SplatLike(0, shown)), 0, {0});
  std::vector<HloValue> values = {value, first};
  if (columns > 0) {
    const HloValue width = hlo.SplatLike(static_cast<double>(columns), first);
    values = {value, hlo.Binary("remainder", first, width), hlo.Div(first, width)};
  }
  hlo.Check(node, hlo.Compare("NE", first, hlo.SplatLike(kNone, first)), values, absl::StatusCode::kInvalidArgument,
            message);
}

HloValue HloRowsAt(HloBuilder& hlo, const HloValue& table, const HloValue& indices) {
  Shape row = table.shape(), rows = table.shape();
  row.set_dim(0, 1);
  rows.set_dim(0, indices.shape().dim(0));
  if (table.shape().dim(0) == 0) return hlo.Splat(0, {table.element(), rows});  // no index is in it
  return hlo.Op("gather", {table, AsColumn(hlo, indices)}, {table.element(), rows},
                absl::StrCat("dimension_numbers = #stablehlo.gather<offset_dims = [", DimsBehindFirst(rows.rank()),
                             "], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
                             "slice_sizes = ",
                             HloInts(row.dims())));
}

HloValue HloAddRows(HloBuilder& hlo, const HloValue& x, const HloValue& indices, const HloValue& rows) {
  if (x.shape().num_elements() == 0) return x;
  return hlo.Op(
      "scatter", {x, AsColumn(hlo, indices), rows}, x.type,
      absl::StrCat("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [",
                   DimsBehindFirst(rows.shape().rank()),
                   "], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"),
      HloCombine("add", x.element()));
}

}  // namespace official::compute
