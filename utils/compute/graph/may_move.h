// Fusions that compute a node's op in another place ask here whether the node's inputs are the same there.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute {

// Returns true if a node at the end of the graph of `producer` may compute what `producer` does: it reads no variable,
// or no node behind it has side effects, which may be an update of that variable. In a rule, `producer` is a node of
// RewriteContext::graph().
bool MayMoveToEnd(const Node& producer);

// Returns true if a node in the place of `earlier` may compute what `node`, of the same graph, does, whose inputs exist
// there: it reads no variable, or no node from `earlier` to it has side effects.
bool MayMoveBefore(const Node& node, const Node& earlier);

// Returns true if a node in the place of `later`, which is behind `node` in the same graph, reads from the inputs of
// `node` what that has read: no node between the two has side effects and takes a variable that `node` reads.
bool ReadsTheSameAt(const Node& node, const Node& later);

}  // namespace official::compute
