#include "utils/train/evaluations/metric_rule.h"

#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace official::train {

bool MetricRule::IsBetter(double value, double other) const {
  if (std::isnan(value)) return false;
  return std::isnan(other) || (increases ? value > other : value < other);
}

std::optional<MetricRule> ParseMetricRule(absl::string_view text, std::optional<int64_t> otherwise) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() < 2 || parts.size() > 3 || parts[0].empty()) return std::nullopt;
  if (parts[1] != "max" && parts[1] != "min") return std::nullopt;
  MetricRule rule{.metric = parts[0], .increases = parts[1] == "max", .number = otherwise.value_or(0)};
  const bool is_number = parts.size() == 2 ? otherwise.has_value() : absl::SimpleAtoi(parts[2], &rule.number);
  if (!is_number || rule.number < 1) return std::nullopt;
  return rule;
}

}  // namespace official::train
