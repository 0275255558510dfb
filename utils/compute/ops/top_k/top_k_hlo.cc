// ArgMax in StableHLO.

#include <cstdint>
#include <limits>
#include <vector>

#include "utils/compute/ops/top_k/top_k.h"
#include "utils/compute/pjrt/hlo_emitter.h"

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

const bool registered =
    RegisterHloEmitter({.op = op::ArgMax, .dtypes = StorageTypesAnd({DType::kInt32}), .emit = EmitArgMax});

}  // namespace
}  // namespace official::compute
