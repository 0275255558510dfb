// The output flags of tools (Program::shared_flags = false): --output and --log_format, as in the training programs.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "utils/flags/flag_group.h"
#include "utils/logs/json.h"

namespace official::flags {

FlagSpec OutputFlag();
FlagSpec LogFormatFlag();

// Sends the log to standard error in the form of --log_format.
absl::Status StartLog();

// True if results are printed as JSON, an object a line (--output=json).
bool WantsJson();

// Prints one such line.
void PrintJson(logs::Json::Object object, std::ostream& out);

}  // namespace official::flags
