// The frame around every program: parse the command line, answer --help, run, tell the outcome.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/flags/command_line.h"

namespace official::flags {

using Body = std::function<absl::Status(const CommandLine&)>;

// `return RunMain(argc, argv, program, body);` is all of a main function. Results and help go to stdout. An error is
// one line on stderr: "FATAL Flags parsing error: ..." and a hint to --help for the command line, "<program>: ..." for
// what `body` returns. The exit status is that of misc::ExitCode, 74 if stdout cannot be written; a body that returns
// Cancelled because of a signal (misc::StopSignals) ends the process by that signal. A C++ exception that leaves `body`
// is reported as an internal error, status 1, and not a crash that a cluster would answer with a restart.
int RunMain(int argc, char** argv, const Program& program, const Body& body);

// The same with the streams in the caller's hands; `arguments` is argv without the program's name.
int Run(const std::vector<std::string>& arguments, const Program& program, const Body& body, std::ostream& out,
        std::ostream& err);

}  // namespace official::flags
