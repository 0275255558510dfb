// ONNX files, as ONNX Runtime, Triton and OpenVINO load them.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/signature.h"

namespace official::exporting {

// Writes the file `path`, what ConvertToOnnx makes of the graph. `variables` holds the values of the graph's variables;
// others are not written. What was written is read back and checked (onnx_check.h). FailedPrecondition if it has more
// than 2 GiB less 16 MiB of variables: a file of protocol buffers has less than 2 GiB; otherwise errors are those of
// the conversion, of the check and of the file system (utils/files).
absl::Status WriteOnnxModel(const std::string& path, const GraphDefBuilder& graph,
                            const std::map<std::string, compute::Tensor>& variables, const Signature& signature);

}  // namespace official::exporting
