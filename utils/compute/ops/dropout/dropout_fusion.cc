// ReluGrad(PackedDropout(dy), y) = ReluGrad(dy, PackedDropout(y)) / (1 - rate), where both drop the same elements:
// those that the ReLU and the dropout let pass are the ones that are positive behind both. So the backward pass draws
// no random numbers, and y, which nobody else needs, may be overwritten by what dropout makes of it.

#include <algorithm>
#include <optional>
#include <vector>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/packed/packed_draws.h"

namespace official::compute {
namespace {

std::optional<std::vector<Value>> TakeMaskFromResult(const Node& node, RewriteContext& context) {
  if (!node.Is(op::ReluGrad)) return std::nullopt;
  const Value dropped_dy = node.input(relu_grad::kDy), y = node.input(relu_grad::kY);
  const Node& backward = *dropped_dy.node();
  if (!backward.Is(op::PackedDropout) || context.UseCount(dropped_dy) != 1) return std::nullopt;
  const auto& nodes = node.graph().nodes();
  const auto forward = std::find_if(nodes.begin(), nodes.begin() + node.id(), [&](const auto& other) {
    return other->Is(op::PackedDropout) && other->input(packed_dropout::kX) == y &&
           other->input(packed_dropout::kOffsets) == backward.input(packed_dropout::kOffsets) &&
           other->input(packed_dropout::kRandomState) == backward.input(packed_dropout::kRandomState) &&
           other->attrs().ToString() == backward.attrs().ToString();
  });
  if (forward == nodes.begin() + node.id() || context.UseCount((*forward)->output(packed_dropout::kY)) == 0) {
    return std::nullopt;
  }
  Graph& graph = context.graph();
  const auto apply = [&](OpName op, const std::vector<Value>& inputs, Attrs attrs = {}) {
    return OutputOf(graph.AddNode(op, inputs, std::move(attrs)), 0);
  };
  const DType dtype = y.dtype();
  const Value scale = graph.Constant(Tensor::Scalar(DropoutRate(backward.attrs().GetFloat("dropout_rate")).scale));
  // In float, as dropout computes; it all becomes one pass.
  Value dx = apply(op::ReluGrad, {context.Mapped(backward.input(packed_dropout::kX)),
                                  context.Mapped((*forward)->output(packed_dropout::kY))});
  if (dtype != DType::kFloat32) dx = apply(op::Cast, {dx}, Attrs{{"dtype", DType::kFloat32}});
  dx = apply(op::Mul, {dx, scale});
  if (dtype != DType::kFloat32) dx = apply(op::Cast, {dx}, Attrs{{"dtype", dtype}});
  return std::vector<Value>{dx};
}

const bool registered = RegisterFusion({.name = "ReluGradOfDropout", .phase = 0, .rule = TakeMaskFromResult});

}  // namespace
}  // namespace official::compute
