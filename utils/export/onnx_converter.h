// Conversion of a TensorFlow graph, such as a SavedModel has, into an ONNX model.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/signature.h"
#include "utils/protos/onnx.pb.h"

namespace official::exporting {

// The version of ONNX's ops: ONNX Runtime 1.6 (2020) and all later versions run it.
inline constexpr int kOnnxOpset = 13;

// The end of the name of an initializer that has the filters of a convolution, [height, width, in, out], as ONNX wants
// them: [out, in, height, width].
inline constexpr absl::string_view kOnnxFilters = "/OIHW";

// Returns filters [height, width, in, out] as [out, in, height, width].
compute::Tensor ToOnnxFilters(const compute::Tensor& filters);

// Returns a model with the inputs and outputs of the signature, under the names that clients use. Variables are
// initializers of their names with the values of `variables`; kOnnxFilters tells the exceptions. Images are [N, C, H,
// W] between the first and the last op on images. A loop is a Loop, whose condition is computed before it and again at
// the end of its body. Known are the ops that AddGraph and TfOps make; Unimplemented, with op and node, for others.
absl::StatusOr<onnx::ModelProto> ConvertToOnnx(const GraphDefBuilder& graph, const Signature& signature,
                                               const std::map<std::string, compute::Tensor>& variables);

}  // namespace official::exporting
