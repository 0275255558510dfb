// The file of --flagfile: one flag per line as --name=value; blank lines and lines that begin with # or // are ignored.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::flags {

struct FlagFileLine {
  std::string text;   // without the blanks around it
  std::string where;  // "path:line"
};

// Reads a flag file. InvalidArgument if it cannot be read, is larger than a megabyte, is binary, or has a line that is
// not a flag.
absl::StatusOr<std::vector<FlagFileLine>> ReadFlagFile(const std::string& path);

}  // namespace official::flags
