#include "utils/distribute/cluster/environment.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/misc/text.h"

namespace official::distribute {

absl::Status VariableError(const char* name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the environment variable ", name, " ", what));
}

bool IsSet(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  return value != nullptr && value[0] != '\0';
}

absl::StatusOr<std::string> ReadText(const Environment& environment, const char* name) {
  if (!IsSet(environment, name)) return VariableError(name, "is not set");
  return environment(name);
}

absl::StatusOr<int> ReadNumber(const Environment& environment, const char* name, int first, int last) {
  const std::string wanted = absl::StrCat("a number from ", first, " to ", last);
  if (!IsSet(environment, name)) return VariableError(name, absl::StrCat("is not set; it needs ", wanted));
  ASSIGN_OR_RETURN(const std::string text, ReadText(environment, name));
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= first && number <= last) return number;
  return VariableError(name, absl::StrCat("is '", misc::Printable(text), "'; it needs ", wanted));
}

}  // namespace official::distribute
