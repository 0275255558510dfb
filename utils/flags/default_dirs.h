// Checks of the directories that a program uses by default.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/flags/command_line.h"

namespace official::flags {

// Returns PermissionDenied if one of them belongs to another user, who could have put links or pipes there.
absl::Status CheckDefaultDirs(const CommandLine& command_line);

// Returns a line for each of them that is missing while the user has files in its former place in /tmp.
std::vector<std::string> NotesOnFormerDefaults(const CommandLine& command_line);

}  // namespace official::flags
