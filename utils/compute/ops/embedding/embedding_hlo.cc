// Embedding in StableHLO.

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/embedding/embedding.h"
#include "utils/compute/ops/packed/hlo_packed_rows.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

// The first place where `wrong` [n] is true, kNone if there is none.
HloValue FirstPlace(HloBuilder& hlo, const HloValue& wrong) {
  const HloValue places = hlo.Iota({hlo::kI32, wrong.shape()}, 0);
  return hlo.Reduce("minimum", hlo.Select(wrong, places, hlo.SplatLike(kNone, places)), kNone, {0});
}

// Fails the run with `message` at the first place where `wrong` is true; $0 is the value of `shown` there, $1 the
// place.
void CheckNone(const Node& node, HloBuilder& hlo, const HloValue& wrong, const HloValue& shown,
               const std::string& message) {
  const HloValue first = FirstPlace(hlo, wrong);
  const HloValue places = hlo.Iota({hlo::kI32, wrong.shape()}, 0);
  const HloValue is_first = hlo.Compare("EQ", places, hlo.Broadcast(first, places.shape()));
  const HloValue value = hlo.Reduce("add", hlo.Select(is_first, shown, hlo.SplatLike(0, shown)), 0, {0});
  hlo.Check(node, hlo.Compare("NE", first, hlo.SplatLike(kNone, first)), {value, first},
            absl::StatusCode::kInvalidArgument, message);
}

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

// The rows of `table` at indices [T], which are inside.
HloValue RowsAt(HloBuilder& hlo, const HloValue& table, const HloValue& indices) {
  const int64_t n = indices.shape().dim(0), size = table.shape().dim(1);
  return hlo.Op("gather", {table, hlo.Reshape(indices, {n, 1})}, {table.element(), {n, size}},
                absl::StrCat("dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
                             "start_index_map = [0], index_vector_dim = 1>, slice_sizes = ",
                             HloInts({1, size})));
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
  const HloValue outside = hlo.Binary("or", hlo.Compare("LT", all, hlo.SplatLike(0, all)),
                                      hlo.Compare("GE", all, hlo.SplatLike(static_cast<double>(num_ids), all)));
  CheckNone(node, hlo, hlo.Binary("and", outside, hlo.Unary("not", rows.is_padding())), all,
            absl::StrCat("id $0 of row $1 is outside [0, ", num_ids, ")"));
  const HloValue offsets = hlo.In(node.input(places::kOffsets));
  const int64_t batch = offsets.shape().dim(0) - 1;
  const HloValue lengths = hlo.Sub(hlo.Slice(offsets, {1}, {batch + 1}), hlo.Slice(offsets, {0}, {batch}));
  CheckNone(node, hlo, hlo.Compare("GT", lengths, hlo.SplatLike(static_cast<double>(length), lengths)), lengths,
            absl::StrCat("sequence $1 has $0 tokens, the positions ", length, " rows"));

  const HloValue ids = IdsOf(node, hlo, rows, node.input(places::kIds));
  const HloValue entries = hlo.Convert(RowsAt(hlo, table, ids), hlo::kF32);
  const HloValue scaled = hlo.Mul(entries, hlo.SplatLike(node.attrs().GetFloat("scale"), entries));
  const HloValue known = hlo.Select(rows.Repeat(IsZero(hlo, ids), shape), hlo.SplatLike(0, scaled), scaled);
  const HloValue of_position = RowsAt(hlo, positions, rows.ClearPadding(rows.position()));
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
