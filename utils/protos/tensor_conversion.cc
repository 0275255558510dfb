#include "utils/protos/tensor_conversion.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"

namespace official {

using compute::DType;

tensorflow::DataType ToDataType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return tensorflow::DT_FLOAT;
    case DType::kBFloat16:
      return tensorflow::DT_BFLOAT16;
    case DType::kFloat16:
      return tensorflow::DT_HALF;
    case DType::kFloat64:
      return tensorflow::DT_DOUBLE;
    case DType::kInt32:
      return tensorflow::DT_INT32;
    case DType::kInt64:
      return tensorflow::DT_INT64;
    case DType::kUInt8:
      return tensorflow::DT_UINT8;
    case DType::kBool:
      return tensorflow::DT_BOOL;
  }
  OFFICIAL_CHECK(false) << "unknown dtype " << static_cast<int>(dtype);
  return tensorflow::DT_INVALID;
}

std::optional<DType> ToDType(tensorflow::DataType data_type) {
  switch (data_type) {
    case tensorflow::DT_FLOAT:
      return DType::kFloat32;
    case tensorflow::DT_BFLOAT16:
      return DType::kBFloat16;
    case tensorflow::DT_HALF:
      return DType::kFloat16;
    case tensorflow::DT_DOUBLE:
      return DType::kFloat64;
    case tensorflow::DT_INT32:
      return DType::kInt32;
    case tensorflow::DT_INT64:
      return DType::kInt64;
    case tensorflow::DT_UINT8:
      return DType::kUInt8;
    case tensorflow::DT_BOOL:
      return DType::kBool;
    default:
      return std::nullopt;
  }
}

std::string DataTypeName(tensorflow::DataType data_type) {
  if (const std::optional<DType> dtype = ToDType(data_type)) return std::string(compute::DTypeName(*dtype));
  const std::string& name = tensorflow::DataType_Name(data_type);
  if (name.empty()) return absl::StrCat("type ", static_cast<int>(data_type));
  return absl::AsciiStrToLower(absl::StripPrefix(name, "DT_"));
}

tensorflow::TensorShapeProto ToShapeProto(absl::Span<const int64_t> dims) {
  tensorflow::TensorShapeProto shape;
  for (int64_t size : dims) shape.add_dim()->set_size(size);
  return shape;
}

tensorflow::TensorProto ToTensorProto(const compute::Tensor& tensor) {
  tensorflow::TensorProto proto;
  proto.set_dtype(ToDataType(tensor.dtype()));
  *proto.mutable_tensor_shape() = ToShapeProto(tensor.shape().dims());
  proto.set_tensor_content(tensor.raw_data(), tensor.num_bytes());
  return proto;
}

tensorflow::TensorProto StringTensorProto(absl::string_view value) {
  tensorflow::TensorProto proto;
  proto.set_dtype(tensorflow::DT_STRING);
  proto.mutable_tensor_shape();
  proto.add_string_val(value.data(), value.size());
  return proto;
}

}  // namespace official
