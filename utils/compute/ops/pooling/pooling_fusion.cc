// ReluGrad(MaxPoolGrad(dy, codes), y) = MaxPoolGrad(ReluGrad(dy, MaxPool(y)), codes): the value that a window passed on
// is positive exactly if its source is, so that the ReLU's gradient can be taken on the pooled, smaller images.

#include <optional>
#include <vector>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/pooling/pooling.h"

namespace official::compute {
namespace {

std::optional<std::vector<Value>> MoveReluGrad(const Node& node, RewriteContext& context) {
  if (!node.Is(op::ReluGrad)) return std::nullopt;
  const Value dx = node.input(0), y = node.input(1);
  if (!dx.node()->Is(op::MaxPoolGrad) || context.UseCount(dx) != 1) return std::nullopt;
  const Value dy = dx.node()->input(max_pool_grad::kDy), codes = dx.node()->input(max_pool_grad::kCodes);
  const Node& pool = *codes.node();
  if (!pool.Is(op::MaxPool) || pool.input(0) != y) return std::nullopt;
  Graph& graph = context.graph();
  const Value pooled = context.Mapped(pool.output(max_pool::kY));
  const Value masked = OutputOf(graph.AddNode(op::ReluGrad, {context.Mapped(dy), pooled}, node.attrs()), 0);
  return std::vector<Value>{
      OutputOf(graph.AddNode(op::MaxPoolGrad, {masked, context.Mapped(codes)}, dx.node()->attrs()), 0)};
}

const bool registered = RegisterFusion({.name = "ReluGradBehindMaxPoolGrad", .phase = 0, .rule = MoveReluGrad});

}  // namespace
}  // namespace official::compute
