// Lowering: how the graph of a model becomes the graph whose nodes a kind of device runs. It depends on the registered
// kernels alone: it takes no device and no memory.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/program/layout_planner.h"

namespace official::compute {

// Returns the part of `graph` that `roots` need, with layouts, and with `fuse` with constants folded and ops fused.
// For a kind of device that merges graphs the result is what it makes of that part.
// Returns the graph's own error if it has one. A node of the result may still have no kernel.
absl::StatusOr<PlannedLayouts> Lower(const Graph& graph, const GraphRoots& roots, absl::string_view device_kind,
                                     bool fuse = true);

// False for a node that gives other bytes a name: a source or a view.
bool NeedsKernel(const Node& node);
// Returns the kernel for a node; Unimplemented, naming the op and the type, if there is none.
absl::StatusOr<const KernelDef*> KernelFor(const Node& node, absl::string_view device_kind);

}  // namespace official::compute
