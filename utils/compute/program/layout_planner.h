// Chooses the layout of every value: each kernel, in order, chooses its layouts given those of its inputs, and a
// Reorder goes before the inputs that differ (one per value and layout, however many kernels read it; one more for a
// variable that may have been updated since).
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

struct PlannedLayouts {
  RewrittenGraph graph;                        // with Reorder nodes
  absl::flat_hash_map<Value, Layout> layouts;  // layouts of the values that are not row-major

  Layout LayoutOf(Value v) const {
    const auto it = layouts.find(v);
    return it == layouts.end() ? Layout::kRowMajor : it->second;
  }
};

// Chooses the layouts. Inputs, variables, constants, fetches and the inputs of views are row-major.
PlannedLayouts PlanLayouts(RewrittenGraph graph, const RewriteEnvironment& environment, absl::string_view device_kind);

}  // namespace official::compute
