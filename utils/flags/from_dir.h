// The flag of programs that download data sets for the directory that has copies of them.
#pragma once

#include <string>

#include "utils/flags/flag_group.h"

namespace official::flags {

// `files` are the names of the files that the directory must have, as users read them.
FlagSpec FromDirFlag(const std::string& files);

std::string FromDir();

}  // namespace official::flags
