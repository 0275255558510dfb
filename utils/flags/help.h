// The texts of --help, --helpfull and --version.
#pragma once

#include <string>

#include "utils/flags/command_line.h"

namespace official::flags {

// Returns the description, examples, then the program's own flags and the key flags of the shared groups, or all flags
// if `full`, with type and default, in 80 columns. For a tool without shared groups it always has all flags.
std::string HelpText(const Program& program, const CommandLine& command_line, bool full);

// Returns a text such as "mnist_main 0.1.0, commit f88c437d4c2a, GCC 12.2.0".
std::string VersionText(const Program& program);

}  // namespace official::flags
