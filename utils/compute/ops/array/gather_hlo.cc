// Rows by their numbers, read and added up, and numbers as rows with a one, in StableHLO.

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/array/moves.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::compute {
namespace {

// int32 [n]; an index outside [0, limit) fails the run.
HloValue CheckedIndices(const Node& node, HloBuilder& hlo, Value indices, int64_t limit) {
  const HloValue flat = hlo.Reshape(hlo.In(indices), {indices.shape().num_elements()});
  HloCheckNone(node, hlo, HloIsOutside(hlo, flat, limit), flat,
               absl::StrCat("index $0 at position $1 is outside [0, ", limit, ")"));
  return flat;
}

void EmitGather(const Node& node, HloBuilder& hlo) {
  const HloValue params = hlo.In(node.input(gather::kParams));
  const HloValue indices = CheckedIndices(node, hlo, node.input(gather::kIndices), params.shape().dim(0));
  hlo.Out(node, gather::kY, hlo.Reshape(HloRowsAt(hlo, params, indices), node.output_types()[gather::kY].shape));
}

void EmitIndexedSlices(const Node& node, HloBuilder& hlo) {
  const Shape& dense = node.output_types()[indexed_slices::kY].shape;
  const HloValue indices = CheckedIndices(node, hlo, node.input(indexed_slices::kIndices), dense.dim(0));
  hlo.Out(node, indexed_slices::kY,
          HloAddRows(hlo, hlo.Splat(0, {hlo::kF32, dense}), indices, hlo.InFloat(node.input(indexed_slices::kRows))));
}

void EmitAddRows(const Node& node, HloBuilder& hlo) {
  const HloValue x = hlo.InFloat(node.input(add_rows::kX));
  const HloValue indices = CheckedIndices(node, hlo, node.input(add_rows::kIndices), x.shape().dim(0));
  hlo.Out(node, add_rows::kY, HloAddRows(hlo, x, indices, hlo.InFloat(node.input(add_rows::kRows))));
}

void EmitOneHot(const Node& node, HloBuilder& hlo) {
  const HloValue indices = hlo.In(node.input(0));
  const Shape& shape = node.output_types()[0].shape;
  std::vector<int64_t> dims;
  for (int i = 0; i < indices.shape().rank(); ++i) dims.push_back(i);
  const HloValue columns = hlo.Iota({indices.element(), shape}, shape.rank() - 1);
  hlo.Out(node, 0, hlo.Compare("EQ", columns, hlo.BroadcastInDim(indices, shape, dims)));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::Gather, .dtypes = AllTypes(), .emit = EmitGather}),
    RegisterHloEmitter({.op = op::IndexedSlices, .dtypes = {DType::kInt32}, .emit = EmitIndexedSlices}),
    RegisterHloEmitter({.op = op::AddRows, .dtypes = StorageTypes(), .emit = EmitAddRows}),
    RegisterHloEmitter({.op = op::OneHot, .dtypes = {DType::kInt32, DType::kInt64}, .emit = EmitOneHot}),
};

}  // namespace
}  // namespace official::compute
