// ArgMax in StableHLO.

#include <cstdint>
#include <limits>
#include <vector>

#include "utils/compute/ops/top_k/top_k.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// The first index whose element is the largest.
void EmitArgMax(const Node& node, HloBuilder& hlo) {
  const HloValue x = hlo.In(node.input(0));
  const int last = x.shape().rank() - 1;
  const bool floating = IsFloating(node.input(0).dtype());
  const double lowest =
      floating ? -std::numeric_limits<double>::infinity() : double{std::numeric_limits<int32_t>::lowest()};
  const HloValue max = hlo.Reduce("maximum", x, lowest, {last});
  std::vector<int64_t> rows;
  for (int i = 0; i < last; ++i) rows.push_back(i);
  const HloValue is_max = hlo.Compare("EQ", x, hlo.BroadcastInDim(max, x.shape(), rows));
  const HloValue columns = hlo.Iota({hlo::kI64, x.shape()}, last);
  const double behind = static_cast<double>(x.shape().dim(-1)) - 1;
  hlo.Out(node, 0, hlo.Reduce("minimum", hlo.Select(is_max, columns, hlo.SplatLike(behind, columns)), behind, {last}));
}

const bool registered =
    RegisterHloEmitter({.op = op::ArgMax, .dtypes = StorageTypesAnd({DType::kInt32}), .emit = EmitArgMax});

}  // namespace
}  // namespace official::compute
