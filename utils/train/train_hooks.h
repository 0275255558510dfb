// The hooks of every run, in addition to those that --hooks names.
#pragma once

#include <memory>
#include <string>

#include "utils/logs/benchmark_logger.h"
#include "utils/logs/hook.h"

namespace official::train {

// Returns a hook that logs once, after the first step of this process: "first training step done 93 ms after process
// start".
std::unique_ptr<logs::Hook> MakeFirstStepHook();

// Returns a hook that logs `loss`, the total loss of the step's batch before its update, to `logger` at every multiple
// of `every_n_steps`.
std::unique_ptr<logs::Hook> MakeLossMetricHook(logs::BaseBenchmarkLogger* logger, int64_t every_n_steps);

// Returns the milliseconds since this process was started (the kernel counts in steps of 10 ms) or, if its `stat_file`
// cannot be read, since the program's initialization.
double MillisecondsSinceProcessStart(const std::string& stat_file = "/proc/self/stat");

}  // namespace official::train
