// The directories that a program uses because the user has named none.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/flags/command_line.h"

namespace official::flags {

// PermissionDenied if one of them belongs to another user, who could have put links or pipes there.
absl::Status CheckDefaultDirs(const CommandLine& command_line);

// A line for each of them that is missing while the user has files where it was before, in /tmp.
std::vector<std::string> NotesOnFormerDefaults(const CommandLine& command_line);

}  // namespace official::flags
