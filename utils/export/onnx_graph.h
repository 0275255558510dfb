// ONNX models as graphs of ours, so that an export can be computed before it is said to be written.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/graph/graph.h"
#include "utils/protos/onnx.pb.h"

namespace official::exporting {

// Adds the nodes of an ONNX graph, whose inputs are `feeds`, and returns its outputs, both by their names. Initializers
// become constants. Known are the ops that ConvertToOnnx makes of what AddGraph adds, with the attributes that it
// writes; Unimplemented, with op and node, for others. The status of `graph` tells whether shapes and types fit.
absl::StatusOr<std::map<std::string, compute::Value>> AddOnnxGraph(const onnx::GraphProto& onnx,
                                                                   const std::map<std::string, compute::Value>& feeds,
                                                                   compute::Graph& graph);

}  // namespace official::exporting
