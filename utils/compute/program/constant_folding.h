// Constant folding: a node whose inputs are all constants is computed while compiling.
#pragma once

#include <optional>
#include <vector>

#include "utils/compute/graph/rewrite.h"

namespace official::compute {

// A RewriteRule. Leaves alone what has side effects, what the CPU has no kernel for and results above 1 MiB.
std::optional<std::vector<Value>> FoldConstants(const Node& node, RewriteContext& context);

}  // namespace official::compute
