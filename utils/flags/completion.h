// The answer to --completion: a script that makes a shell complete the flags of a program.
#pragma once

#include <string>

#include "utils/flags/command_line.h"

namespace official::flags {

// Returns the script for command_line.request_value(). It completes the names of flags (those of booleans also with
// "no"), the choices of flags that have some, directories for flags whose name ends in _dir, files for other flags that
// hold a text, and the last item of a list; nothing for a number. Flags that the program does not use are left out.
std::string CompletionScript(const Program& program, const CommandLine& command_line);

}  // namespace official::flags
