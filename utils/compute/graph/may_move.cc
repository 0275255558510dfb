#include "utils/compute/graph/may_move.h"

#include <algorithm>

#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

bool ReadsVariable(Value v) {
  while (v.node()->op().is_view) v = v.node()->input(0);
  return v.node()->Is(op::Variable);
}

}  // namespace

bool MayMoveToEnd(const Node& producer) {
  if (std::none_of(producer.inputs().begin(), producer.inputs().end(), ReadsVariable)) return true;
  const auto& nodes = producer.graph().nodes();
  return std::none_of(nodes.begin() + producer.id(), nodes.end(),
                      [](const auto& node) { return node->op().has_side_effect; });
}

}  // namespace official::compute
