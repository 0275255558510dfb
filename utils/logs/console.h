// The log of a program, on standard error.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::logs {

// Sends the log to standard error in the form that --log_format names; auto means what the terminal and the environment
// can show (ResolveOutputStyle). InvalidArgument for a form that does not exist.
absl::Status LogToConsole(absl::string_view log_format);

}  // namespace official::logs
