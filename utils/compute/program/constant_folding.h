// Constant folding: a node whose inputs are all constants is computed while compiling.
#pragma once

#include <optional>
#include <vector>

#include "utils/compute/graph/rewrite.h"

namespace official::compute {

// A RewriteRule. It does not fold nodes that have side effects or several outputs, for which the CPU has no kernel or
// whose results are above 1 MiB.
std::optional<std::vector<Value>> FoldConstants(const Node& node, RewriteContext& context);

}  // namespace official::compute
