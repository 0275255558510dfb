// The answer to --dump_config.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "utils/flags/command_line.h"

namespace official::flags {

// Returns a flag file of all flags in the order of the help, with a comment above each that says where its value is
// from: the command line, a flag file with the line, the training in --model_dir, or the default. Comments at the top
// have what else decides a run: the words, the cluster that the environment describes, and the variables of the
// environment. --flagfile reads the same values back. InvalidArgument if the environment contradicts itself.
absl::StatusOr<std::string> ConfigDump(const Program& program, const CommandLine& command_line);

}  // namespace official::flags
