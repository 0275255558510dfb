// The words of a command line that are not flags, in programs that take a few.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/flags/command_line.h"

namespace official::flags {

// Returns InvalidArgument unless there are `min` to `max` words. The message has what to write, `usage` (what
// Program::words says of them) after the program's name, and the words that are there.
absl::Status CheckNumWords(const CommandLine& command_line, absl::string_view usage, size_t min, size_t max);
// Does so for the words after `command`, such as "checkpoint_tool ls".
absl::Status CheckNumWords(const std::vector<std::string>& words, absl::string_view command, absl::string_view usage,
                           size_t min, size_t max);

}  // namespace official::flags
