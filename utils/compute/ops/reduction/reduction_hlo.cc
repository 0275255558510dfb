// The reductions in StableHLO.

#include <cmath>
#include <limits>
#include <vector>

#include "utils/compute/ops/reduction/passes.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<int64_t> DimsOf(const Node& node) {
  std::vector<int64_t> dims;
  const std::vector<bool> reduced = ReducedAxes(node);
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (reduced[i]) dims.push_back(static_cast<int64_t>(i));
  }
  return dims;
}

void Emit(const Node& node, HloBuilder& hlo) {
  const HloValue x = hlo.InFloat(node.input(0));
  const std::vector<int64_t> dims = DimsOf(node);
  const Shape& shape = node.output_types()[0].shape;
  if (node.Is(op::Max) || node.Is(op::Min)) {
    const bool is_max = node.Is(op::Max);
    const HloValue y = hlo.Reduce(is_max ? "maximum" : "minimum", x, is_max ? -kInfinity : kInfinity, dims);
    // A compiler may pass NaN over.
    const HloValue has_nan = hlo.Reduce("or", hlo.Compare("NE", x, x), 0, dims);
    const HloValue nan = hlo.SplatLike(std::numeric_limits<double>::quiet_NaN(), y);
    hlo.Out(node, 0, hlo.Reshape(hlo.Select(has_nan, nan, y), shape));
    return;
  }
  if (node.Is(op::Mean)) {
    double count = 1;
    for (const int64_t dim : dims) count *= static_cast<double>(x.shape().dim(static_cast<int>(dim)));
    // The sum may be beyond float32: where it is added up in that, elements are divided by a power of two before.
    int exponent = 0;
    const double part = hlo.options().has_64_bits ? count : std::frexp(count, &exponent);  // count / 2^exponent
    const HloValue scaled = exponent == 0 ? x : hlo.Mul(x, hlo.SplatLike(std::ldexp(1.0, -exponent), x));
    const HloValue sum = hlo.WideSum(scaled, dims);
    hlo.Out(node, 0, hlo.Reshape(hlo.Div(sum, hlo.SplatLike(part, sum)), shape));
    return;
  }
  hlo.Out(node, 0, hlo.Reshape(hlo.Sum(x, dims), shape));
}

const bool registered = [] {
  for (const OpName op : {op::Sum, op::Mean, op::Max, op::Min, op::BiasAddGrad}) {
    RegisterHloEmitter({.op = op, .dtypes = StorageTypes(), .emit = Emit});
  }
  return true;
}();

}  // namespace
}  // namespace official::compute
