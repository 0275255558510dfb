// Fusions that compute a node's op in a later place ask here whether the node's inputs are still the same there.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute {

// Returns true if a node at the end of the graph of `producer` may compute what `producer` does: it reads no variable,
// or no node behind it has side effects, which may be an update of that variable. In a rule, `producer` is a node of
// RewriteContext::graph().
bool MayMoveToEnd(const Node& producer);

}  // namespace official::compute
