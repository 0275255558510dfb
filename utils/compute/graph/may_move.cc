#include "utils/compute/graph/may_move.h"

#include <algorithm>
#include <memory>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/views.h"

namespace official::compute {
namespace {

bool ReadsVariable(Value v) { return Base(v).node()->Is(op::Variable); }

bool ReadsAnyVariable(const Node& node) {
  return std::any_of(node.inputs().begin(), node.inputs().end(), ReadsVariable);
}

bool HasSideEffect(const std::unique_ptr<Node>& node) { return node->op().has_side_effect; }

bool Reads(const Node& node, Value base) {
  return std::any_of(node.inputs().begin(), node.inputs().end(), [&](Value v) { return Base(v) == base; });
}

}  // namespace

bool MayMoveToEnd(const Node& producer) {
  const auto& nodes = producer.graph().nodes();
  return !ReadsAnyVariable(producer) || std::none_of(nodes.begin() + producer.id(), nodes.end(), HasSideEffect);
}

bool MayMoveBefore(const Node& node, const Node& earlier) {
  const auto begin = node.graph().nodes().begin();
  return !ReadsAnyVariable(node) || std::none_of(begin + earlier.id(), begin + node.id(), HasSideEffect);
}

bool ReadsTheSameAt(const Node& node, const Node& later) {
  const auto begin = node.graph().nodes().begin();
  return std::all_of(node.inputs().begin(), node.inputs().end(), [&](Value v) {
    const auto may_update = [&](const std::unique_ptr<Node>& between) {
      return HasSideEffect(between) && Reads(*between, Base(v));
    };
    return !ReadsVariable(v) || std::none_of(begin + node.id(), begin + later.id(), may_update);
  });
}

}  // namespace official::compute
