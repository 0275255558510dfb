// A process that begins again in place: the same program and command line, the same process for who started it.
#pragma once

#include "absl/strings/string_view.h"

namespace official::misc {

// Asks for that, with a variable of the environment set. flags::RunMain begins again when the program has ended with
// kExitResumeMe.
void RequestRestart(absl::string_view variable, absl::string_view value);
// Begins again at once if it was asked for, whatever other threads do. Returns if it was not, or if the system does not
// let it, which is written to stderr.
void RestartIfRequested();

}  // namespace official::misc
