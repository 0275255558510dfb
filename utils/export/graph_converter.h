// Conversion of a compute::Graph into TensorFlow nodes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/export/graph_def_builder.h"

namespace official::exporting {

// A value of the graph, and the name of the node in `out` that stands for it.
struct GraphFeed {
  compute::Value value;
  std::string name;
};

// Adds to `out` the nodes that compute `fetches`, and returns the name of each. Dimension 0 of the feeds, and so of
// every value that depends on them, is the batch: the nodes take batches of any size, whatever size the graph was built
// for. Known are the ops of prediction with convolutional networks and with embeddings, on float32; their nodes run on
// a CPU in TensorFlow 1.8 and all later versions. Unimplemented, with the name of the op, for any other, or one that
// does not keep the batch in dimension 0; InvalidArgument for an Input that is not fed.
absl::StatusOr<std::vector<std::string>> AddGraph(absl::Span<const GraphFeed> feeds,
                                                  absl::Span<const compute::Value> fetches, GraphDefBuilder& out);

}  // namespace official::exporting
