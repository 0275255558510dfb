// The ONNX form of TensorFlow's ops.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/onnx_walk.h"
#include "utils/protos/graph.pb.h"

namespace official::exporting {

// Adds what a node becomes and returns its output 0. Images may be in either layout.
struct OnnxForm {
  absl::StatusOr<OnnxValue> (*function)(OnnxWalk& walk, const tensorflow::NodeDef& node, absl::string_view op);
  absl::string_view op;  // the name of ONNX's op, of the last if there are several
};
using OnnxForms = std::map<absl::string_view, OnnxForm>;  // by TensorFlow's ops

// Returns nullptr if there is none.
const OnnxForm* OnnxFormOf(absl::string_view tensorflow_op);

// Return the forms by the ops that they are for: OnnxFormOf looks in all three.
OnnxForms OnnxFormsOfMath();
OnnxForms OnnxFormsOfLayers();
OnnxForms OnnxFormsOfArrays();

// Returns Unimplemented, naming the op and its node; `why` ends the sentence.
absl::Status NoOnnxForm(const tensorflow::NodeDef& node, absl::string_view why);
// Returns the name of a node on the way to what `node` becomes.
inline std::string Step(const tensorflow::NodeDef& node, absl::string_view op) {
  return absl::StrCat(node.name(), "/", op);
}
// Return attributes, 0 or false for one that is left out.
int64_t IntAttrOf(const tensorflow::NodeDef& node, const std::string& name);
bool BoolAttrOf(const tensorflow::NodeDef& node, const std::string& name);
// Return attributes that must be there.
std::vector<int64_t> IntsAttrOf(const tensorflow::NodeDef& node, const std::string& name);
compute::DType TypeAttrOf(const tensorflow::NodeDef& node, const std::string& name);
// Returns the value of a Const.
absl::StatusOr<compute::Tensor> TensorOf(const tensorflow::NodeDef& node);

}  // namespace official::exporting
