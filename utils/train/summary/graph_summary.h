// The contents of TensorBoard's page of graphs: a graph, and the time of each node in a step.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/logs/chrome_trace.h"

namespace official::train {

// Returns a serialized tensorflow.GraphDef for EventWriter::AddGraphDef: each node with its op, its inputs, and the
// types and shapes of its outputs. Inputs, constants and variables have TensorFlow's ops; the others have ours. It is
// for reading, not for running: the values of constants and the attributes of ops are left out.
std::string GraphDefOf(const compute::Graph& graph);

// Returns a serialized tensorflow.RunMetadata for EventWriter::AddRunMetadata: the times of the ops that the devices
// ran.
std::string RunMetadataOf(absl::Span<const logs::DeviceTrace> devices);

}  // namespace official::train
