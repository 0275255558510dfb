// The values of variables: statistics, differences, means, and their text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/logs/json.h"

namespace official::checkpoint_tool {

// Statistics of the finite elements of a tensor; all 0 if there are none.
struct Statistics {
  double min = 0, max = 0, mean = 0;
  double std = 0;                            // of the population: the root of the mean square distance from the mean
  int64_t num_nonfinite = 0;                 // elements that are NaN or infinite
  std::optional<int64_t> first_nonfinite{};  // its row-major index
};

// Computes in double, whatever the type.
Statistics StatisticsOf(const compute::Tensor& tensor);

struct Difference {
  int64_t num_different = 0;  // elements
  // Over all elements. Relative: |a - b| / max(|a|, |b|). Both are infinite if an element is finite in one tensor only.
  double max_abs = 0, max_rel = 0;
};

// Compares two tensors of one type. Elements of floating types differ if |a - b| > tolerance * max(1, |a|, |b|); two
// NaNs are equal. Those of other types differ if they are not the same.
Difference DifferenceOf(const compute::Tensor& a, const compute::Tensor& b, double tolerance);

// Returns the mean of `count` tensors of the floating type `type`, which `read` returns one after the other: summed in
// double, in the order of their numbers, and rounded to the type.
absl::StatusOr<compute::Tensor> MeanOf(const compute::TensorType& type, int count,
                                       const std::function<absl::StatusOr<compute::Tensor>(int)>& read);

// Returns an element with the fewest digits that read back as the same value: "0.1", "-inf", "7", "true".
std::string ElementText(const compute::Tensor& tensor, int64_t index);
// Returns the same as a number or boolean.
logs::Json ElementJson(const compute::Tensor& tensor, int64_t index);

}  // namespace official::checkpoint_tool
