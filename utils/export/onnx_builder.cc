#include "utils/export/onnx_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"

namespace official::exporting {
namespace {

using compute::DType;
using onnx::AttributeProto;

AttributeProto Attribute(const std::string& name, AttributeProto::AttributeType type) {
  AttributeProto attr;
  attr.set_name(name);
  attr.set_type(type);
  return attr;
}

onnx::TensorProto ToOnnxTensor(const compute::Tensor& value) {
  onnx::TensorProto proto;
  for (const int64_t size : value.shape().dims()) proto.add_dims(size);
  proto.set_data_type(ToOnnxType(value.dtype()));
  proto.set_raw_data(value.raw_data(), value.num_bytes());
  return proto;
}

void Describe(const std::string& name, DType dtype, const OnnxBuilder::Dims& dims, onnx::ValueInfoProto& info) {
  info.set_name(name);
  auto& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(ToOnnxType(dtype));
  if (!dims) return;
  type.mutable_shape();
  for (size_t i = 0; i < dims->size(); ++i) {
    onnx::TensorShapeProto::Dimension& dim = *type.mutable_shape()->add_dim();
    if ((*dims)[i] >= 0) {
      dim.set_dim_value((*dims)[i]);
    } else {
      dim.set_dim_param(i == 0 ? "batch" : absl::StrCat(name, "_", i));
    }
  }
}

}  // namespace

AttributeProto OnnxInt(const std::string& name, int64_t value) {
  AttributeProto attr = Attribute(name, AttributeProto::INT);
  attr.set_i(value);
  return attr;
}

AttributeProto OnnxInts(const std::string& name, absl::Span<const int64_t> values) {
  AttributeProto attr = Attribute(name, AttributeProto::INTS);
  attr.mutable_ints()->Add(values.begin(), values.end());
  return attr;
}

AttributeProto OnnxFloat(const std::string& name, float value) {
  AttributeProto attr = Attribute(name, AttributeProto::FLOAT);
  attr.set_f(value);
  return attr;
}

AttributeProto OnnxString(const std::string& name, const std::string& value) {
  AttributeProto attr = Attribute(name, AttributeProto::STRING);
  attr.set_s(value);
  return attr;
}

AttributeProto OnnxTensor(const std::string& name, const compute::Tensor& value) {
  AttributeProto attr = Attribute(name, AttributeProto::TENSOR);
  *attr.mutable_t() = ToOnnxTensor(value);
  return attr;
}

AttributeProto OnnxGraph(const std::string& name, onnx::GraphProto value) {
  AttributeProto attr = Attribute(name, AttributeProto::GRAPH);
  *attr.mutable_g() = std::move(value);
  return attr;
}

onnx::TensorProto::DataType ToOnnxType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return onnx::TensorProto::FLOAT;
    case DType::kBFloat16:
      return onnx::TensorProto::BFLOAT16;
    case DType::kFloat16:
      return onnx::TensorProto::FLOAT16;
    case DType::kFloat64:
      return onnx::TensorProto::DOUBLE;
    case DType::kInt32:
      return onnx::TensorProto::INT32;
    case DType::kInt64:
      return onnx::TensorProto::INT64;
    case DType::kUInt8:
      return onnx::TensorProto::UINT8;
    case DType::kBool:
      return onnx::TensorProto::BOOL;
  }
  OFFICIAL_CHECK(false) << "unknown dtype " << static_cast<int>(dtype);
  return onnx::TensorProto::UNDEFINED;
}

std::optional<DType> FromOnnxType(int type) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt32,
                            DType::kInt64, DType::kUInt8, DType::kBool}) {
    if (ToOnnxType(dtype) == type) return dtype;
  }
  return std::nullopt;
}

std::string OnnxBuilder::Unique(const std::string& name) {
  std::string unique = name;
  for (int i = 1; !taken_.insert(unique).second; ++i) unique = absl::StrCat(name, "_", i);
  return unique;
}

std::string OnnxBuilder::AddInput(const std::string& name, DType dtype, const Dims& dims) {
  const std::string unique = Unique(name);
  Describe(unique, dtype, dims, *graph_.add_input());
  return unique;
}

std::string OnnxBuilder::AddInitializer(const std::string& name, const compute::Tensor& value) {
  const std::string unique = Unique(name);
  onnx::TensorProto& initializer = *graph_.add_initializer();
  initializer = ToOnnxTensor(value);
  initializer.set_name(unique);
  return unique;
}

std::string OnnxBuilder::AddNode(absl::string_view op, const std::string& name, absl::Span<const std::string> inputs,
                                 Attrs attrs) {
  return AddNodeOf(1, op, name, inputs, std::move(attrs))[0];
}

std::vector<std::string> OnnxBuilder::AddNodeOf(size_t num_outputs, absl::string_view op, const std::string& name,
                                                absl::Span<const std::string> inputs, Attrs attrs) {
  onnx::NodeProto& node = *graph_.add_node();
  std::vector<std::string> outputs;
  for (size_t i = 0; i < num_outputs; ++i) {
    outputs.push_back(Unique(i == 0 ? name : absl::StrCat(name, ":", i)));
    node.add_output(outputs.back());
  }
  node.set_name(outputs[0]);
  node.set_op_type(std::string(op));
  for (const std::string& input : inputs) node.add_input(input);
  for (AttributeProto& attr : attrs) *node.add_attribute() = std::move(attr);
  return outputs;
}

void OnnxBuilder::AddOutput(const std::string& name, const std::string& value, DType dtype, const Dims& dims) {
  onnx::NodeProto& copy = *graph_.add_node();
  copy.set_name(name);
  copy.set_op_type("Identity");
  copy.add_input(value);
  copy.add_output(name);
  Describe(name, dtype, dims, *graph_.add_output());
}

}  // namespace official::exporting
