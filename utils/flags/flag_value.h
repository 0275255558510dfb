// The value of a flag: how it is written, what it may be.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/flags/command_line.h"

namespace official::flags {

bool IsBoolean(const CommandLine::Flag& flag);

// Returns the present value as the command line and flag files have it: the word for zero where 0 itself is refused.
std::string ValueText(const CommandLine::Flag& flag);

// Returns the flag's possible values: "an integer, at least 1", "<fp16|bf16|fp32>", "a comma-separated list", ...
std::string DescribeValues(const CommandLine::Flag& flag);

// Returns the items of a list as it is written: separated by commas, without the blanks around them.
std::vector<std::string> ListItems(absl::string_view text);

// Sets the flag to the value, in the program's spelling. InvalidArgument, naming flag, value and what is wanted, if it
// is not of the flag's type; CheckValue looks at the rest.
absl::Status SetValue(CommandLine::Flag& flag, absl::string_view value);

// InvalidArgument, naming flag, value and what is wanted, if the present value is out of the flag's range, none of its
// choices, or missing where the flag is required.
absl::Status CheckValue(const CommandLine::Flag& flag);

}  // namespace official::flags
