// Environment variables of launchers: numbers and texts, with errors that name the variable.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::distribute {

// Returns the value of an environment variable, nullptr if it is not set: std::getenv, or a map in tests.
using Environment = std::function<const char*(const char* name)>;

// The most processes of a cluster: synchronous training would not work with more, and a list of them is small.
inline constexpr int kMaxProcesses = 8192;

// Returns true if the variable is set, to more than nothing.
bool IsSet(const Environment& environment, const char* name);

// Returns the value. InvalidArgument if the variable is not set or empty.
absl::StatusOr<std::string> ReadText(const Environment& environment, const char* name);

// Returns the value, which is a number from `first` to `last`. InvalidArgument otherwise, with the value.
absl::StatusOr<int> ReadNumber(const Environment& environment, const char* name, int first, int last);

// Returns InvalidArgument: "the environment variable <name> <what>".
absl::Status VariableError(const char* name, absl::string_view what);

}  // namespace official::distribute
