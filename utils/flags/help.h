// The texts of --help, --helpfull and --version.
#pragma once

#include <string>

#include "utils/flags/command_line.h"

namespace official::flags {

// Description, examples, then the program's own flags and the key flags of the shared groups, or all flags if `full`,
// with type and default, in 80 columns. A tool without shared groups always shows all.
std::string HelpText(const Program& program, const CommandLine& command_line, bool full);

// "mnist_main 0.1.0, commit f88c437d4c2a, GCC 12.2.0"
std::string VersionText(const Program& program);

}  // namespace official::flags
