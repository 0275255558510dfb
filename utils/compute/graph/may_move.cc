#include "utils/compute/graph/may_move.h"

#include <algorithm>
#include <memory>

#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

bool ReadsVariable(Value v) {
  while (v.node()->op().is_view) v = v.node()->input(0);
  return v.node()->Is(op::Variable);
}

bool ReadsAnyVariable(const Node& node) {
  return std::any_of(node.inputs().begin(), node.inputs().end(), ReadsVariable);
}

bool HasSideEffect(const std::unique_ptr<Node>& node) { return node->op().has_side_effect; }

}  // namespace

bool MayMoveToEnd(const Node& producer) {
  const auto& nodes = producer.graph().nodes();
  return !ReadsAnyVariable(producer) || std::none_of(nodes.begin() + producer.id(), nodes.end(), HasSideEffect);
}

bool MayMoveBefore(const Node& node, const Node& earlier) {
  const auto begin = node.graph().nodes().begin();
  return !ReadsAnyVariable(node) || std::none_of(begin + earlier.id(), begin + node.id(), HasSideEffect);
}

}  // namespace official::compute
