// The flags of programs that put a data set into a directory, downloaded or copied.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/flags/command_line.h"
#include "utils/flags/flag_group.h"

namespace official::flags {

// --data_dir, where the data go. `reader` is the program that reads them there. Its default is one of
// Program::defaults, made by files::DefaultDataDir.
FlagSpec DataDirFlag(absl::string_view reader);
// Returns the first word of the command line, if it has one, else the value of --data_dir. PermissionDenied if that is
// the default and somebody else's (files::CheckOwner); InvalidArgument if both are given.
absl::StatusOr<std::string> DataDir(const CommandLine& command_line);

// --from_dir, the directory that has copies of what would be downloaded. `files` are the names that it must have, as
// users read them.
FlagSpec FromDirFlag(const std::string& files);
std::string FromDir();

}  // namespace official::flags
