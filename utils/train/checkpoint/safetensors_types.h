// The names of types in safetensors.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "utils/compute/core/dtype.h"

namespace official::train {

struct SafetensorsType {
  absl::string_view name;
  int64_t element_bytes;
  std::optional<compute::DType> dtype;  // nothing if no compute::Tensor has the type
  absl::string_view tensorflow_name;
};

// In the order in which the library safetensors writes tensors: wide types first, so that all are aligned.
inline constexpr SafetensorsType kSafetensorsTypes[] = {
    {"U64", 8, std::nullopt, "uint64"},
    {"I64", 8, compute::DType::kInt64, "int64"},
    {"F64", 8, compute::DType::kFloat64, "float64"},
    {"C64", 8, std::nullopt, "complex64"},
    {"F32", 4, compute::DType::kFloat32, "float32"},
    {"U32", 4, std::nullopt, "uint32"},
    {"I32", 4, compute::DType::kInt32, "int32"},
    {"BF16", 2, compute::DType::kBFloat16, "bfloat16"},
    {"F16", 2, compute::DType::kFloat16, "half"},
    {"U16", 2, std::nullopt, "uint16"},
    {"I16", 2, std::nullopt, "int16"},
    {"F8_E4M3", 1, std::nullopt, "float8_e4m3fn"},
    {"F8_E5M2", 1, std::nullopt, "float8_e5m2"},
    {"I8", 1, std::nullopt, "int8"},
    {"U8", 1, compute::DType::kUInt8, "uint8"},
    {"BOOL", 1, compute::DType::kBool, "bool"},
};

inline constexpr absl::string_view kSafetensorsMetadata = "__metadata__";
inline constexpr absl::string_view kSafetensorsString = "string:";

}  // namespace official::train
