// Between this project's tensors and TensorFlow's messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/protos/tensor.pb.h"

namespace official {

tensorflow::DataType ToDataType(compute::DType dtype);
// Nothing for the types that no Tensor here can have (strings, complex numbers, 8-bit floats, ...).
std::optional<compute::DType> ToDType(tensorflow::DataType data_type);
// TensorFlow's name of the type, as people read it: "float32", "string"; "type 99" if there is none.
std::string DataTypeName(tensorflow::DataType data_type);

// `dims`: sizes, -1 for those not known.
tensorflow::TensorShapeProto ToShapeProto(absl::Span<const int64_t> dims);
tensorflow::TensorProto ToTensorProto(const compute::Tensor& tensor);
// A scalar string.
tensorflow::TensorProto StringTensorProto(absl::string_view value);

}  // namespace official
