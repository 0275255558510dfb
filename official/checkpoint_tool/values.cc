#include "official/checkpoint_tool/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"

namespace official::checkpoint_tool {
namespace {

using compute::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Calls f with the elements of the tensor as an array of its C++ type.
template <typename F>
auto WithElements(const Tensor& tensor, F&& f) {
  return compute::WithDType(tensor.dtype(), [&]<typename T>(T) { return f(tensor.data<T>()); });
}

template <typename T>
bool IsSame(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
Statistics Measure(const T* elements, int64_t n) {
  Statistics found;
  double sum = 0;
  found.min = kInfinity;
  found.max = -kInfinity;
  for (int64_t i = 0; i < n; ++i) {
    const double value = compute::ConvertElement<double>(elements[i]);
    if (!std::isfinite(value)) {
      if (found.num_nonfinite++ == 0) found.first_nonfinite = i;
      continue;
    }
    found.min = std::min(found.min, value);
    found.max = std::max(found.max, value);
    sum += value;
  }
  const int64_t num_finite = n - found.num_nonfinite;
  if (num_finite == 0) return {.num_nonfinite = found.num_nonfinite, .first_nonfinite = found.first_nonfinite};
  found.mean = sum / num_finite;
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = compute::ConvertElement<double>(elements[i]);
    if (std::isfinite(value)) squares += (value - found.mean) * (value - found.mean);
  }
  found.std = std::sqrt(squares / num_finite);
  return found;
}

template <typename T>
Difference Compare(const T* a, const T* b, int64_t n, bool is_floating, double tolerance) {
  Difference found;
  for (int64_t i = 0; i < n; ++i) {
    if (IsSame(a[i], b[i])) continue;
    const double x = compute::ConvertElement<double>(a[i]), y = compute::ConvertElement<double>(b[i]);
    const bool equal = x == y || (std::isnan(x) && std::isnan(y));
    if (equal && is_floating) continue;
    double abs = std::abs(x - y);
    const double largest = std::max(std::abs(x), std::abs(y));
    double rel = largest > 0 ? abs / largest : 0;
    if (!std::isfinite(x) || !std::isfinite(y)) abs = rel = kInfinity;
    found.max_abs = std::max(found.max_abs, abs);
    found.max_rel = std::max(found.max_rel, rel);
    const bool close = abs <= tolerance * std::max(1.0, std::isfinite(largest) ? largest : 1.0);
    if (!is_floating || !close) ++found.num_different;
  }
  return found;
}

}  // namespace

Statistics StatisticsOf(const Tensor& tensor) {
  return WithElements(tensor, [&](const auto* elements) { return Measure(elements, tensor.num_elements()); });
}

Difference DifferenceOf(const Tensor& a, const Tensor& b, double tolerance) {
  OFFICIAL_CHECK(a.type() == b.type()) << a.type().ToString() << " and " << b.type().ToString();
  return WithElements(a, [&]<typename T>(const T* elements) {
    return Compare(elements, b.data<T>(), a.num_elements(), compute::IsFloating(a.dtype()), tolerance);
  });
}

absl::StatusOr<Tensor> MeanOf(const compute::TensorType& type, int count,
                              const std::function<absl::StatusOr<Tensor>(int)>& read) {
  std::vector<double> sums(type.shape.num_elements());
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Tensor tensor, read(i));
    OFFICIAL_CHECK(tensor.type() == type) << tensor.type().ToString();
    WithElements(tensor, [&](const auto* elements) {
      for (size_t j = 0; j < sums.size(); ++j) sums[j] += compute::ConvertElement<double>(elements[j]);
    });
  }
  Tensor mean(type);
  WithElements(mean, [&]<typename T>(T* elements) {
    for (size_t j = 0; j < sums.size(); ++j) elements[j] = compute::ConvertElement<T>(sums[j] / count);
  });
  return mean;
}

std::string ElementText(const Tensor& tensor, int64_t index) {
  return WithElements(tensor, [&]<typename T>(const T* elements) -> std::string {
    if constexpr (std::is_same_v<T, bool>) {
      return elements[index] ? "true" : "false";
    } else if constexpr (std::is_same_v<T, double>) {
      return logs::FormatDouble(elements[index]);
    } else if constexpr (std::is_integral_v<T>) {
      return absl::StrCat(int64_t{elements[index]});
    } else {
      return logs::FormatFloat(static_cast<float>(elements[index]));
    }
  });
}

logs::Json ElementJson(const Tensor& tensor, int64_t index) {
  return WithElements(tensor, [&]<typename T>(const T* elements) -> logs::Json {
    if constexpr (std::is_same_v<T, bool>) {
      return elements[index];
    } else if constexpr (std::is_integral_v<T>) {
      return int64_t{elements[index]};
    } else {
      return compute::ConvertElement<double>(elements[index]);
    }
  });
}

}  // namespace official::checkpoint_tool
