// The flags that the training programs share.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "utils/flags/flag_group.h"

namespace official::flags {

// Returns the groups of flags, in the order of the help.
std::vector<FlagGroup> SharedGroups();

// Returns one of their flags by name, for a tool that has only some of them.
FlagSpec SharedFlag(absl::string_view name);

}  // namespace official::flags
