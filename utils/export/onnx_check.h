// The checks of an ONNX model before an export is said to be done.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/answers.h"
#include "utils/export/signature.h"
#include "utils/protos/onnx.pb.h"

namespace official::exporting {

// Checks a model and the bodies of its loops, without computing it: all names differ, every input of a node is an input
// of the graph, an initializer or the output of a node before it, likewise every output of the graph; initializers have
// as many bytes as their types and shapes say; and the inputs and outputs are those of the signature, by name, type and
// shape. Internal, naming node or value, if one of this is not so.
absl::Status CheckOnnxModel(const onnx::ModelProto& model, const Signature& signature);

// Reads back the file `path`: it has the bytes of `model`, which is a model that passes CheckOnnxModel, and each of
// `variables` is one of its initializers (see ConvertToOnnx), with the same bytes. Aborted, naming the file or the
// variable, if the bytes are others; Internal if a variable is not there.
absl::Status CheckOnnxFile(const std::string& path, absl::string_view model, const Signature& signature,
                           const std::map<std::string, compute::Tensor>& variables);

// Computes a model that passes CheckOnnxModel, and compares with the answers of the trained one: see CheckAnswers.
// Unimplemented if it has an op that AddOnnxGraph does not know.
absl::Status CheckOnnxAnswers(const onnx::ModelProto& model, const Answers& answers);

}  // namespace official::exporting
