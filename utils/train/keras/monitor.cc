#include "utils/train/keras/monitor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::keras {

absl::StatusOr<double> ValueOf(const Logs& logs, const std::string& monitor, absl::string_view callback) {
  const auto found = std::find_if(logs.begin(), logs.end(), [&](const auto& log) { return log.first == monitor; });
  if (found != logs.end()) return found->second;
  const auto name = [](std::string* out, const auto& log) { absl::StrAppend(out, log.first); };
  return absl::InvalidArgumentError(absl::StrCat(
      callback, " monitors ", monitor, ", which an epoch does not have; it has ", absl::StrJoin(logs, ", ", name)));
}

void SetLog(Logs& logs, const std::string& name, double value) {
  const auto found = std::find_if(logs.begin(), logs.end(), [&](const auto& log) { return log.first == name; });
  if (found == logs.end()) {
    logs.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

bool IsBetter(double value, double than, Mode mode, double min_delta) {
  return mode == Mode::kMin ? value < than - min_delta : value > than + min_delta;
}

double WorstOf(Mode mode) {
  return mode == Mode::kMin ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

}  // namespace official::keras
