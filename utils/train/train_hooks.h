// Hooks of every run, beside those that --hooks names.
#pragma once

#include <memory>
#include <string>

#include "utils/logs/benchmark_logger.h"
#include "utils/logs/hook.h"

namespace official::train {

// Says once, after the first step of this process: "first training step done 93 ms after process start".
std::unique_ptr<logs::Hook> MakeFirstStepHook();

// Logs `loss`, the total loss of the step's batch before its update, to `logger` at every multiple of `every_n_steps`.
std::unique_ptr<logs::Hook> MakeLossMetricHook(logs::BaseBenchmarkLogger* logger, int64_t every_n_steps);

// Milliseconds since this process was started (the kernel counts in steps of 10 ms) or, where its `stat_file` cannot be
// read, since the program's initialization.
double MillisecondsSinceProcessStart(const std::string& stat_file = "/proc/self/stat");

}  // namespace official::train
