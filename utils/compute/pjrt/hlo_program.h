// The graph of a program as one node: a StableHLO module that a device compiles as a whole.
#pragma once

#include "absl/status/statusor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/pjrt/hlo_builder.h"

namespace official::compute::op {

// The inputs are the feeds, then the variables of the graph; the outputs are its fetches. Attributes: "text", the
// module (HloBuilder::Module), "updated", the places of the inputs whose buffers the module takes and whose new values
// follow the outputs among its results, "checks" (HloChecksOf), "has_error" and "sums_over_devices" (those of
// HloBuilder), "types", those of the outputs, and kMergedNodes.
inline constexpr OpName HloModule("HloModule");

}  // namespace official::compute::op

namespace official::compute {

// Returns the options for the devices of a plugin by its platform's name: "tpu", "cpu".
HloOptions HloOptionsFor(absl::string_view platform);

// Returns a graph with the same feeds, fetches and variables whose only other node is an HloModule. Returns
// Unimplemented, naming the op and the type, if a node has no emitter, InvalidArgument if an input is not fed.
absl::StatusOr<RewrittenGraph> EmitProgram(const RewrittenGraph& program, const HloOptions& options = {});

// The checks of an HloModule node, by their numbers.
std::vector<HloCheck> HloChecksOf(const Node& node);

}  // namespace official::compute
