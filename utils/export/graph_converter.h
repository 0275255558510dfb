// A graph of ours as nodes of TensorFlow.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/export/graph_def_builder.h"

namespace official::exporting {

// A value of the graph, and the node of `out` that stands for it.
struct GraphFeed {
  compute::Value value;
  std::string name;
};

// Adds to `out` the nodes that compute `fetches`, and returns the name of each. Dimension 0 of the feeds, and so of
// every value that depends on them, is the batch: the nodes take batches of any size, whatever size the graph was built
// for. Ops are those of prediction with convolutional networks and with embeddings, on float32, in a form that
// TensorFlow 1.8 and all later versions run on a CPU. Unimplemented, naming it, for another op, or one that does not
// keep the batch in dimension 0; InvalidArgument for an Input that is not fed.
absl::StatusOr<std::vector<std::string>> AddGraph(absl::Span<const GraphFeed> feeds,
                                                  absl::Span<const compute::Value> fetches, GraphDefBuilder& out);

}  // namespace official::exporting
