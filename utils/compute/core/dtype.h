// Element types of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/half.h"

namespace official::compute {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64, kInt32, kInt64, kUInt8, kBool };

// The bytes of one element.
int64_t SizeOf(DType dtype);
// Returns TensorFlow's name: "float32", "bfloat16", "half", "float64", "int32", "int64", "uint8", "bool".
absl::string_view DTypeName(DType dtype);
// True for float32, bfloat16, float16 and float64.
bool IsFloating(DType dtype);
// The floating types that kernels compute in: float32, bfloat16, float16. Arithmetic is in float, whatever is stored.
std::vector<DType> StorageTypes();
bool IsStorageType(DType dtype);
// StorageTypes(), followed by `others`.
std::vector<DType> StorageTypesAnd(std::vector<DType> others);

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
constexpr DType DTypeOf<Half>() {
  return DType::kFloat16;
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

// True for the 16-bit types, which are converted to float to compute with.
template <typename T>
inline constexpr bool kIsNarrowFloat = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

// Calls f with a value of the C++ type of `dtype`, one of StorageTypes():
//   WithStorageType(spec.input(0).dtype, [&]<typename T>(T) { return MakeSoftmax<T>(spec); })
template <typename F>
auto WithStorageType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBFloat16:
      return f(BFloat16());
    case DType::kFloat16:
      return f(Half());
    default:
      OFFICIAL_CHECK(dtype == DType::kFloat32) << DTypeName(dtype) << " is not computed in float";
      return f(float());
  }
}

// Returns f(T()), where T is the C++ type of `dtype`.
template <typename F>
auto WithDType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float());
    case DType::kBFloat16:
      return f(BFloat16());
    case DType::kFloat16:
      return f(Half());
    case DType::kFloat64:
      return f(double());
    case DType::kInt32:
      return f(int32_t());
    case DType::kInt64:
      return f(int64_t());
    case DType::kUInt8:
      return f(uint8_t());
    case DType::kBool:
      break;
  }
  OFFICIAL_CHECK(dtype == DType::kBool) << "unknown dtype " << static_cast<int>(dtype);
  return f(bool());
}

// Converts an element by the rules of C++; 16-bit floats are converted by way of float.
template <typename To, typename From>
constexpr To ConvertElement(From value) {
  if constexpr (kIsNarrowFloat<From>) {
    return ConvertElement<To>(static_cast<float>(value));
  } else if constexpr (kIsNarrowFloat<To>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace official::compute
