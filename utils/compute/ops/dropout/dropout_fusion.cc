// ReluGrad(Dropout(dy), y) = ReluGrad(dy, Dropout(y)) / (1 - rate), where both drop the same elements: those that the
// ReLU and the dropout let pass are the ones that are positive behind both. The same goes for PackedDropout. So the
// backward pass draws no random numbers, and y, which nobody else needs, may be overwritten by what dropout makes of
// it.

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

// A dropout that draws the same as `backward`, of `y`, in front of `end`; nullptr if there is none.
const Node* ForwardOf(const Node& backward, Value y, const Node& end, RewriteContext& context) {
  for (const Node* other : context.Readers(y)) {
    if (other->id() > end.id() || !other->Is(backward.op().name) || other->input(0) != y ||
        other->attrs().ToString() != backward.attrs().ToString()) {
      continue;
    }
    if (std::equal(other->inputs().begin() + 1, other->inputs().end(), backward.inputs().begin() + 1) &&
        context.UseCount(other->output(0)) > 0) {
      return other;
    }
  }
  return nullptr;
}

std::optional<std::vector<Value>> TakeMaskFromResult(const Node& node, RewriteContext& context) {
  if (!node.Is(op::ReluGrad)) return std::nullopt;
  const Value dropped_dy = node.input(relu_grad::kDy), y = node.input(relu_grad::kY);
  const Node& backward = *dropped_dy.node();
  const bool packed = backward.Is(op::PackedDropout);
  if ((!packed && !backward.Is(op::Dropout)) || context.UseCount(dropped_dy) != 1 || !IsStorageType(y.dtype())) {
    return std::nullopt;
  }
  const Node* const forward = ForwardOf(backward, y, node, context);
  if (forward == nullptr) return std::nullopt;
  Graph& graph = context.graph();
  const auto apply = [&](OpName op, const std::vector<Value>& inputs, Attrs attrs = {}) {
    return OutputOf(graph.AddNode(op, inputs, std::move(attrs)), 0);
  };
  const DType dtype = y.dtype();
  const double rate = backward.attrs().GetFloat(packed ? "dropout_rate" : "rate");
  const Value scale = graph.Constant(Tensor::Scalar(DropoutRate(rate).scale));
  // In float, as dropout computes; it all becomes one pass.
  Value dx = apply(op::ReluGrad, {context.Mapped(backward.input(0)), context.Mapped(forward->output(0))});
  if (dtype != DType::kFloat32) dx = apply(op::Cast, {dx}, Attrs{{"dtype", DType::kFloat32}});
  dx = apply(op::Mul, {dx, scale});
  if (dtype != DType::kFloat32) dx = apply(op::Cast, {dx}, Attrs{{"dtype", dtype}});
  return std::vector<Value>{dx};
}

const bool registered = RegisterFusion({.name = "ReluGradOfDropout", .phase = 0, .rule = TakeMaskFromResult});

}  // namespace
}  // namespace official::compute
