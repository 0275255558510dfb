#include "utils/flags/flag_group.h"

#include <cmath>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/misc/text.h"

namespace official::flags {

bool Range::Contains(double value) const {
  return std::isfinite(value) && (without_min ? value > min : value >= min) &&
         (without_max ? value < max : value <= max);
}

std::string Range::ToString() const {
  std::string text;
  if (std::isfinite(min)) absl::StrAppend(&text, without_min ? "more than " : "at least ", min);
  if (std::isfinite(max)) {
    absl::StrAppend(&text, text.empty() ? "" : " and ", without_max ? "less than " : "at most ", max);
  }
  return text;
}

absl::Status FlagError(absl::string_view name, absl::string_view why) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  OFFICIAL_CHECK(flag != nullptr) << "no such flag: " << name;
  const std::string value = flag->CurrentValue();
  return absl::InvalidArgumentError(
      absl::StrCat("flag --", name, value.empty() ? "" : absl::StrCat("=", misc::Printable(value)), ": ", why));
}

}  // namespace official::flags
