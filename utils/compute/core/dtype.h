// Element types of tensors.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/bfloat16.h"

namespace official::compute {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64, kInt32, kInt64, kUInt8, kBool };

// Bytes of one element.
int64_t SizeOf(DType dtype);
// TensorFlow's name: "float32", "bfloat16", "half", "float64", "int32", "int64", "uint8", "bool".
absl::string_view DTypeName(DType dtype);
// float32, bfloat16, float16 or float64.
bool IsFloating(DType dtype);

// The DType of a C++ type: DTypeOf<float>() is kFloat32.
template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType DTypeOf<BFloat16>() {
  return DType::kBFloat16;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kUInt8;
}
template <>
constexpr DType DTypeOf<bool>() {
  return DType::kBool;
}

}  // namespace official::compute
