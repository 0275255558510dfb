// EndProcess: ends a process that waits for what may never come, and so cannot return from its main function.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace official::run {

// Ends this process with the exit status of an error, which is in the log then, as flags::RunMain would. Nothing is
// destroyed or flushed: what a killed process leaves behind is left. `before_end` is called after the log if the exit
// status is misc::kExitResumeMe, with which RunMain may begin again, too. Of several threads that call this only the
// first one's error is in the log; the others wait for the end.
[[noreturn]] void EndProcess(
    const std::string& program, const absl::Status& error, const std::function<void()>& before_end = [] {});

}  // namespace official::run
