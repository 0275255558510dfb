#include "utils/export/graph_def_builder.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/protos/tensor_conversion.h"

namespace official::exporting {

using tensorflow::AttrValue;

AttrValue TypeAttr(compute::DType dtype) {
  AttrValue attr;
  attr.set_type(ToDataType(dtype));
  return attr;
}

AttrValue ShapeAttr(absl::Span<const int64_t> dims) {
  AttrValue attr;
  *attr.mutable_shape() = ToShapeProto(dims);
  return attr;
}

AttrValue IntAttr(int64_t value) {
  AttrValue attr;
  attr.set_i(value);
  return attr;
}

AttrValue IntsAttr(absl::Span<const int64_t> values) {
  AttrValue attr;
  attr.mutable_list()->mutable_i()->Add(values.begin(), values.end());
  return attr;
}

AttrValue FloatAttr(float value) {
  AttrValue attr;
  attr.set_f(value);
  return attr;
}

AttrValue BoolAttr(bool value) {
  AttrValue attr;
  attr.set_b(value);
  return attr;
}

AttrValue StringAttr(absl::string_view value) {
  AttrValue attr;
  attr.set_s(value.data(), value.size());
  return attr;
}

std::string GraphDefBuilder::AddNode(absl::string_view op, const std::string& name,
                                     absl::Span<const std::string> inputs, const Attrs& attrs) {
  std::string unique = name;
  for (int i = 1; !names_.insert(unique).second; ++i) unique = absl::StrCat(name, "_", i);
  tensorflow::NodeDef* const node = graph_def_.add_node();
  node->set_name(unique);
  node->set_op(std::string(op));
  for (const std::string& input : inputs) node->add_input(input);
  for (const auto& [key, value] : attrs) (*node->mutable_attr())[key] = value;
  return unique;
}

std::string GraphDefBuilder::AddPlaceholder(const std::string& name, compute::DType dtype,
                                            absl::Span<const int64_t> dims) {
  return AddNode("Placeholder", name, {}, {{"dtype", TypeAttr(dtype)}, {"shape", ShapeAttr(dims)}});
}

std::string GraphDefBuilder::AddConst(const std::string& name, tensorflow::TensorProto value) {
  AttrValue dtype, content;
  dtype.set_type(value.dtype());
  *content.mutable_tensor() = std::move(value);
  return AddNode("Const", name, {}, {{"dtype", dtype}, {"value", content}});
}

std::string GraphDefBuilder::AddConst(const std::string& name, const compute::Tensor& value) {
  return AddConst(name, ToTensorProto(value));
}

std::string GraphDefBuilder::AddStringConst(const std::string& name, const std::string& value) {
  return AddConst(name, StringTensorProto(value));
}

std::string GraphDefBuilder::AddStringsConst(const std::string& name, absl::Span<const std::string> values) {
  tensorflow::TensorProto proto;
  proto.set_dtype(tensorflow::DT_STRING);
  *proto.mutable_tensor_shape() = ToShapeProto({static_cast<int64_t>(values.size())});
  for (const std::string& value : values) proto.add_string_val(value);
  return AddConst(name, std::move(proto));
}

std::string GraphDefBuilder::AddVariable(const std::string& name, const compute::TensorType& type) {
  const std::string handle = AddNode("VarHandleOp", name, {},
                                     {{"container", StringAttr("")},
                                      {"dtype", TypeAttr(type.dtype)},
                                      {"shape", ShapeAttr(type.shape.dims())},
                                      {"shared_name", StringAttr(name)}});
  OFFICIAL_CHECK(handle == name) << "variable " << name << " has the name of another node";
  variables_.push_back({name, type});
  return AddNode("ReadVariableOp", absl::StrCat(name, "/Read/ReadVariableOp"), {handle},
                 {{"dtype", TypeAttr(type.dtype)}});
}

}  // namespace official::exporting
