// Conversions between this project's tensors and TensorFlow's messages.
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
// Returns the type of a Tensor; nothing for types that no Tensor can have (strings, complex numbers, 8-bit floats,
// ...).
std::optional<compute::DType> ToDType(tensorflow::DataType data_type);
// Returns TensorFlow's readable name of the type: "float32", "string"; "type 99" if there is none.
std::string DataTypeName(tensorflow::DataType data_type);

// Returns the shape of `dims`, -1 for unknown sizes.
tensorflow::TensorShapeProto ToShapeProto(absl::Span<const int64_t> dims);
tensorflow::TensorProto ToTensorProto(const compute::Tensor& tensor);
// Returns a scalar string.
tensorflow::TensorProto StringTensorProto(absl::string_view value);

}  // namespace official
