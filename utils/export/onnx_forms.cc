#include "utils/export/onnx_forms.h"

#include <cstring>
#include <optional>

#include "utils/compute/core/check.h"
#include "utils/protos/tensor_conversion.h"

namespace official::exporting {

using compute::DType;
using tensorflow::NodeDef;

namespace {

using Result = OnnxWalk::Result;

OnnxForms AllForms() {
  OnnxForms forms = {
      {"Const", {[](OnnxWalk& w, const NodeDef& node, absl::string_view op) { return w.Constant(node, op); }, ""}},
      {"Enter", {[](OnnxWalk& w, const NodeDef& node, absl::string_view op) { return w.Enter(node, op); }, ""}},
      {"Exit", {[](OnnxWalk& w, const NodeDef& node, absl::string_view op) { return w.Loop(node, op); }, "Loop"}},
      {"ReadVariableOp",
       {[](OnnxWalk& w, const NodeDef& node, absl::string_view op) { return w.Variable(node, op); }, ""}},
  };
  for (const auto& part : {OnnxFormsOfMath(), OnnxFormsOfLayers(), OnnxFormsOfArrays()}) {
    forms.insert(part.begin(), part.end());
  }
  return forms;
}

}  // namespace

const OnnxForm* OnnxFormOf(absl::string_view tensorflow_op) {
  static const auto* const forms = new OnnxForms(AllForms());
  const auto found = forms->find(tensorflow_op);
  return found == forms->end() ? nullptr : &found->second;
}

absl::Status NoOnnxForm(const NodeDef& node, absl::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("the op ", node.op(), " (node ", node.name(), ") cannot be exported to ONNX", why));
}

int64_t IntAttrOf(const NodeDef& node, const std::string& name) {
  const auto found = node.attr().find(name);
  return found == node.attr().end() ? 0 : found->second.i();
}

bool BoolAttrOf(const NodeDef& node, const std::string& name) {
  const auto found = node.attr().find(name);
  return found != node.attr().end() && found->second.b();
}

std::vector<int64_t> IntsAttrOf(const NodeDef& node, const std::string& name) {
  const auto& list = node.attr().at(name).list().i();
  return std::vector<int64_t>(list.begin(), list.end());
}

DType TypeAttrOf(const NodeDef& node, const std::string& name) {
  const std::optional<DType> dtype = ToDType(node.attr().at(name).type());
  OFFICIAL_CHECK(dtype.has_value()) << node.name();
  return *dtype;
}

absl::StatusOr<compute::Tensor> TensorOf(const NodeDef& node) {
  const tensorflow::TensorProto& proto = node.attr().at("value").tensor();
  const std::optional<DType> dtype = ToDType(proto.dtype());
  if (!dtype) return NoOnnxForm(node, absl::StrCat(" of type ", DataTypeName(proto.dtype())));
  std::vector<int64_t> dims;
  for (const auto& dim : proto.tensor_shape().dim()) dims.push_back(dim.size());
  compute::Tensor tensor(*dtype, compute::Shape(dims));
  OFFICIAL_CHECK(static_cast<int64_t>(proto.tensor_content().size()) == tensor.num_bytes()) << node.name();
  std::memcpy(tensor.raw_data(), proto.tensor_content().data(), proto.tensor_content().size());
  return tensor;
}

}  // namespace official::exporting
