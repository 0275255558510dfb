// MetricRule: which metric of an evaluation decides, in which direction, and a number that belongs to it:
// "accuracy:max:3".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace official::train {

struct MetricRule {
  std::string metric;  // the name of a result of an evaluation
  bool increases;      // true: a larger value is better
  int64_t number;      // at least 1; of checkpoints, or of evaluations
  // True if `value` is better than `other`, strictly. A value that is no number is worse than all others.
  bool IsBetter(double value, double other) const;
};

// Returns what METRIC:max:NUMBER or METRIC:min:NUMBER says. Without :NUMBER the number is `otherwise`, if there is one.
// Nothing if the text is of another form.
std::optional<MetricRule> ParseMetricRule(absl::string_view text, std::optional<int64_t> otherwise);

}  // namespace official::train
