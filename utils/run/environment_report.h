// The answer to --env: what a report of a problem needs.
#pragma once

#include <string>

#include "utils/flags/command_line.h"

namespace official::run {

// Returns versions, the system, the processor with the cores and memory that the process may use, the GPUs or why there
// are none, and the environment variables that the program reads, without secrets: a line "processor.model: ..." for
// each value, or one JSON object. What the machine does not tell is left out. It loads the CUDA backend, if there is a
// driver, and gRPC.
std::string EnvironmentReport(const flags::Program& program, bool json);

}  // namespace official::run
