// The time that is left of a run, as --dry_run tells it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace official::run {

struct RunTime {
  int64_t steps = 0, evaluations = 0;  // that are left
  double step_seconds = 0;
  std::optional<double> evaluation_seconds = std::nullopt;  // unset: not known

  // The seconds of all steps, and of the evaluations if they are known.
  double KnownSeconds() const;
};

// Returns "about 1:02:03: 600 steps of about 6.2 s, 1 evaluation of about 2.5 s".
std::string RunTimeText(const RunTime& time);

}  // namespace official::run
