// Embedding in StableHLO.

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/embedding/embedding.h"
#include "utils/compute/ops/packed/hlo_packed_rows.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::compute {
namespace {

// int32 [T]: the id that each row uses; 0, which stands for no entry, for padding and behind nothing.
HloValue IdsOf(const Node& node, HloBuilder& hlo, const HloPackedRows& rows, Value ids_value) {
  const HloValue ids = hlo.In(ids_value);
  const HloValue zeros = hlo.SplatLike(0, ids);
  HloValue used = ids;
  if (node.attrs().GetBool("shift_right")) {
    const HloValue shifted = hlo.Pad(ids, hlo.Splat(0, {hlo::kI32, {}}), {1}, {-1}, {0});
    used = hlo.Select(hlo.Compare("EQ", rows.position(), zeros), zeros, shifted);
  }
  return hlo.Select(rows.is_padding(), zeros, used);
}

HloValue Drop(const Node& node, HloBuilder& hlo, const HloPackedRows& rows, const HloValue& x, int random_state) {
  if (node.attrs().GetFloat("dropout_rate") == 0) return x;
  return hlo.Mul(x, rows.DropFactors(node.input(random_state), x.shape().dim(1)));
}

HloValue IsZero(HloBuilder& hlo, const HloValue& x) { return hlo.Compare("EQ", x, hlo.SplatLike(0, x)); }

void EmitEmbedding(const Node& node, HloBuilder& hlo) {
  namespace places = embedding;
  const Shape& shape = node.output_types()[places::kY].shape;
  const HloPackedRows rows(node, hlo, places::kOffsets, shape.dim(0), "row");
  const HloValue table = hlo.In(node.input(places::kTable)), positions = hlo.In(node.input(places::kPositions));
  const int64_t num_ids = table.shape().dim(0), length = positions.shape().dim(0);
  const HloValue all = hlo.In(node.input(places::kIds));
  const HloValue wrong = hlo.Binary("and", HloIsOutside(hlo, all, num_ids), hlo.Unary("not", rows.is_padding()));
  HloCheckNone(node, hlo, wrong, all, absl::StrCat("id $0 of row $1 is outside [0, ", num_ids, ")"));
  const HloValue offsets = hlo.In(node.input(places::kOffsets));
  const int64_t batch = offsets.shape().dim(0) - 1;
  const HloValue lengths = hlo.Sub(hlo.Slice(offsets, {1}, {batch + 1}), hlo.Slice(offsets, {0}, {batch}));
  HloCheckNone(node, hlo, hlo.Compare("GT", lengths, hlo.SplatLike(static_cast<double>(length), lengths)), lengths,
               absl::StrCat("sequence $1 has $0 tokens, the positions ", length, " rows"));

  const HloValue ids = IdsOf(node, hlo, rows, node.input(places::kIds));
  const HloValue entries = hlo.Convert(HloRowsAt(hlo, table, ids), hlo::kF32);
  const HloValue scaled = hlo.Mul(entries, hlo.SplatLike(node.attrs().GetFloat("scale"), entries));
  const HloValue known = hlo.Select(rows.Repeat(IsZero(hlo, ids), shape), hlo.SplatLike(0, scaled), scaled);
  const HloValue of_position = HloRowsAt(hlo, positions, rows.ClearPadding(rows.position()));
  const HloValue y = Drop(node, hlo, rows, hlo.Add(known, of_position), places::kRandomState);
  hlo.Out(node, places::kY, rows.ClearPadding(y));
}

void EmitEmbeddingGrad(const Node& node, HloBuilder& hlo) {
  namespace places = embedding_grad;
  const HloValue dy = hlo.InFloat(node.input(places::kDy));
  const HloPackedRows rows(node, hlo, places::kOffsets, dy.shape().dim(0), "row");
  const HloValue ids = IdsOf(node, hlo, rows, node.input(places::kIds));
  const HloValue scaled = hlo.Mul(dy, hlo.SplatLike(node.attrs().GetFloat("scale"), dy));
  const HloValue dropped = Drop(node, hlo, rows, scaled, places::kRandomState);
  hlo.Out(node, places::kRows,
          hlo.Select(rows.Repeat(IsZero(hlo, ids), dy.shape()), hlo.SplatLike(0, dropped), dropped));
  hlo.Out(node, places::kIndices, ids);
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::Embedding, .dtypes = StorageTypes(), .emit = EmitEmbedding}),
    RegisterHloEmitter({.op = op::EmbeddingGrad, .dtypes = StorageTypes(), .emit = EmitEmbeddingGrad}),
};

}  // namespace
}  // namespace official::compute
