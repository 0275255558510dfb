// The texts of --help, --helpfull, --helpmatch and --version.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "utils/flags/command_line.h"

namespace official::flags {

// Returns the description, examples, then the program's own flags and the key flags of the shared groups, or all flags
// if `full`, with type and default, in 80 columns. For a tool without shared groups it always has all flags.
std::string HelpText(const Program& program, const CommandLine& command_line, bool full);

// Returns the flags, in their groups, whose names or help texts have the text of --helpmatch. InvalidArgument if there
// are none.
absl::StatusOr<std::string> MatchingHelpText(const Program& program, const CommandLine& command_line);

// Returns a text such as "mnist_main 0.1.0, commit f88c437d4c2a, GCC 12.2.0, without kernels for GPUs", or else with
// "kernels for GPUs by CUDA 13.0, cuDNN 9.19.0 and NCCL 2.28.9".
std::string VersionText(const Program& program);

}  // namespace official::flags
