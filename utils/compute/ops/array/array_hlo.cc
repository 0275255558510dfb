// Ops that move elements in StableHLO.

#include <cstdint>
#include <vector>

#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/array/moves.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

void EmitTranspose(const Node& node, HloBuilder& hlo) {
  hlo.Out(node, 0, hlo.Transpose(hlo.In(node.input(0)), node.attrs().GetInts("perm")));
}

void EmitConcat(const Node& node, HloBuilder& hlo) {
  std::vector<HloValue> values;
  for (const Value& v : node.inputs()) values.push_back(hlo.In(v));
  const int64_t axis = node.attrs().GetInt("axis");
  hlo.Out(node, 0, hlo.Concatenate(values, static_cast<int>(axis < 0 ? axis + values[0].shape().rank() : axis)));
}

void EmitSlice(const Node& node, HloBuilder& hlo) {
  const std::vector<int64_t>& begin = node.attrs().GetInts("begin");
  std::vector<int64_t> end = node.attrs().GetInts("size");
  for (size_t i = 0; i < end.size(); ++i) end[i] += begin[i];
  hlo.Out(node, 0, hlo.Slice(hlo.In(node.input(0)), begin, end));
}

void EmitPad(const Node& node, HloBuilder& hlo) {
  const std::vector<int64_t>& paddings = node.attrs().GetInts("paddings");
  std::vector<int64_t> low, high;
  for (size_t i = 0; i < paddings.size(); i += 2) {
    low.push_back(paddings[i]);
    high.push_back(paddings[i + 1]);
  }
  const HloValue x = hlo.In(node.input(0));
  hlo.Out(node, 0, hlo.Pad(x, hlo.Splat(0, {x.element(), {}}), low, high, std::vector<int64_t>(low.size(), 0)));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::Transpose, .dtypes = AllTypes(), .emit = EmitTranspose}),
    RegisterHloEmitter({.op = op::Concat, .dtypes = AllTypes(), .emit = EmitConcat}),
    RegisterHloEmitter({.op = op::Slice, .dtypes = AllTypes(), .emit = EmitSlice}),
    RegisterHloEmitter({.op = op::Pad, .dtypes = AllTypes(), .emit = EmitPad}),
};

}  // namespace
}  // namespace official::compute
