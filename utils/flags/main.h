// The main function of every program: parses the command line, answers --help, runs the program, reports the outcome.
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
// an error of `body`. The exit status is that of misc::ExitCode, 74 if stdout cannot be written; if `body` returns
// Cancelled because of a signal (misc::StopSignals), the process ends by that signal; if it has asked for it
// (misc::RequestRestart), the process begins again. A C++ exception that leaves `body` is reported as an internal
// error, status 1, not as a crash after which a cluster would restart the process.
int RunMain(int argc, char** argv, const Program& program, const Body& body);

// Does the same with the caller's streams; `arguments` is argv without the program's name.
int Run(const std::vector<std::string>& arguments, const Program& program, const Body& body, std::ostream& out,
        std::ostream& err);

}  // namespace official::flags
