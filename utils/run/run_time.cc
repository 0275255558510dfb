#include "utils/run/run_time.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/logs/task_progress.h"

namespace official::run {
namespace {

// "1:02:03", or "0.25 s" of less than a minute.
std::string TimeText(double seconds) {
  return seconds < 60 ? absl::StrFormat("%.3g s", seconds) : logs::FormatDuration(std::round(seconds));
}

// "1 step", "2 steps".
std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

double RunTime::KnownSeconds() const {
  return static_cast<double>(steps) * step_seconds + static_cast<double>(evaluations) * evaluation_seconds.value_or(0);
}

std::string RunTimeText(const RunTime& time) {
  std::vector<std::string> parts;
  if (time.steps > 0) {
    parts.push_back(absl::StrCat(Counted(time.steps, "step"), " of about ", TimeText(time.step_seconds)));
  }
  if (time.evaluations > 0) {
    parts.push_back(absl::StrCat(Counted(time.evaluations, "evaluation"),
                                 time.evaluation_seconds
                                     ? absl::StrCat(" of about ", TimeText(*time.evaluation_seconds))
                                     : " of unknown length"));
  }
  if (parts.empty()) return "nothing is left";
  const bool is_known = time.evaluations == 0 || time.evaluation_seconds.has_value();
  const std::string sum = is_known         ? absl::StrCat("about ", TimeText(time.KnownSeconds()))
                          : time.steps > 0 ? absl::StrCat("more than about ", TimeText(time.KnownSeconds()))
                                           : "not known";
  return absl::StrCat(sum, ": ", absl::StrJoin(parts, ", "));
}

}  // namespace official::run
