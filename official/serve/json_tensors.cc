#include "official/serve/json_tensors.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/logs/json.h"

namespace official::serve {
namespace {

using compute::DType;
using compute::Tensor;
using Json = nlohmann::json;

std::string Describe(const Json& json) {
  if (json.is_array()) return absl::StrCat("a list of ", json.size());
  if (json.is_object()) return "an object";
  if (json.is_string()) return "a string";
  return json.dump();  // a number, true, false or null
}

std::string TypeText(const TensorInfo& input) {
  return absl::StrCat(compute::DTypeName(*input.dtype), "[", absl::StrJoin(input.dims, ","), "]");
}

absl::Status Mismatch(const Json& json, const TensorInfo& input, const std::string& where, absl::string_view needed) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, " is ", Describe(json), "; ", input.name, " is ", TypeText(input), ", so it needs ", needed));
}

template <typename T>
bool ReadNumber(const Json& json, T* out) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!json.is_number()) return false;
    const auto value = json.get<double>();
    *out = static_cast<T>(value);
    return std::abs(value) <= std::numeric_limits<T>::max();
  } else {
    if (json.is_number_unsigned()) {
      const auto value = json.get<uint64_t>();
      *out = static_cast<T>(value);
      return value <= static_cast<uint64_t>(std::numeric_limits<T>::max());
    }
    if (!json.is_number_integer()) return false;
    const auto value = json.get<int64_t>();
    *out = static_cast<T>(value);
    return value >= std::numeric_limits<T>::min();  // it is negative
  }
}

// Fills `out`, which is moved behind the last element, with the dimensions from `dim` on.
template <typename T>
absl::Status Fill(const Json& json, const TensorInfo& input, size_t dim, const std::string& where, T*& out) {
  if (dim == input.dims.size()) {
    if (ReadNumber(json, out++)) return absl::OkStatus();
    return Mismatch(json, input, where, absl::StrCat("a number of ", compute::DTypeName(*input.dtype)));
  }
  if (!json.is_array() || static_cast<int64_t>(json.size()) != input.dims[dim]) {
    return Mismatch(json, input, where, absl::StrCat("a list of ", input.dims[dim]));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    // The text of the place is made only where it is needed: there may be millions of elements.
    T* const begin = out;
    if (Fill(json[i], input, dim + 1, where, out).ok()) continue;
    out = begin;
    return Fill(json[i], input, dim + 1, absl::StrCat(where, "[", i, "]"), out);
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<Value> ReadTensor(const Json& json, const TensorInfo& input, const std::string& where) {
  Tensor tensor(*input.dtype, compute::Shape(input.dims));
  T* out = tensor.data<T>();
  RETURN_IF_ERROR(Fill(json, input, 0, where, out));
  return tensor;
}

bool IsBase64(const Json& json) { return json.is_object() && json.size() == 1 && json.contains("b64"); }

absl::StatusOr<Value> ReadBase64(const Json& json, const std::string& where) {
  std::string bytes;
  const Json& text = json["b64"];
  if (text.is_string() && absl::Base64Unescape(text.get_ref<const std::string&>(), &bytes)) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(where, ".b64 is not base64"));
}

template <typename T, typename Append>
void AppendElements(const Tensor& tensor, size_t dim, const T*& next, const Append& append, std::string& out) {
  if (dim == static_cast<size_t>(tensor.shape().rank())) return append(*next++);
  out += '[';
  for (int64_t i = 0; i < tensor.shape().dim(static_cast<int>(dim)); ++i) {
    if (i > 0) out += ", ";
    AppendElements(tensor, dim + 1, next, append, out);
  }
  out += ']';
}

template <typename T>
void AppendTensor(const Tensor& tensor, std::string& out) {
  const T* next = tensor.data<T>();
  AppendElements(
      tensor, 0, next,
      [&](T value) {
        if constexpr (std::is_same_v<T, float>) {
          absl::StrAppend(&out, logs::FormatFloat(value));
        } else {
          absl::StrAppend(&out, value);
        }
      },
      out);
}

}  // namespace

absl::StatusOr<Value> ValueFromJson(const Json& json, const TensorInfo& input, const std::string& where) {
  if (IsBase64(json)) return ReadBase64(json, where);
  if (!input.dtype) {
    if (json.is_string()) return json.get<std::string>();
    return absl::InvalidArgumentError(absl::StrCat(where, " is ", Describe(json), "; ", input.name, " needs a string"));
  }
  switch (*input.dtype) {
    case DType::kFloat32:
      return ReadTensor<float>(json, input, where);
    case DType::kInt32:
      return ReadTensor<int32_t>(json, input, where);
    default:
      OFFICIAL_CHECK(false) << "no servable has inputs of " << compute::DTypeName(*input.dtype);
  }
  return absl::InternalError("");
}

void AppendJsonString(absl::string_view text, std::string& out) {
  // Bytes that are not UTF-8, such as those of half a character in a message that was cut, become U+FFFD.
  out += Json(std::string(text)).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

void AppendJson(const Value& value, std::string& out) {
  if (const auto* const text = std::get_if<std::string>(&value)) return AppendJsonString(*text, out);
  const Tensor& tensor = std::get<Tensor>(value);
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return AppendTensor<float>(tensor, out);
    case DType::kInt32:
      return AppendTensor<int32_t>(tensor, out);
    case DType::kInt64:
      return AppendTensor<int64_t>(tensor, out);
    default:
      OFFICIAL_CHECK(false) << "no servable has outputs of " << compute::DTypeName(tensor.dtype());
  }
}

}  // namespace official::serve
