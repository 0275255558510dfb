// The hooks of every run, in addition to those that --hooks names.
#pragma once

#include <memory>
#include <string>

#include "utils/logs/benchmark_logger.h"
#include "utils/logs/hook.h"

namespace official::train {

// Returns a hook that logs once, after the first step of this process: "first training step done 93 ms after process
// start", which is that of this program (utils/misc/program_start.h).
std::unique_ptr<logs::Hook> MakeFirstStepHook();

// Returns a hook that logs `loss`, the total loss of the step's batch before its update, to `logger` at every multiple
// of `every_n_steps`. The record's extras have the mode "train"; those of an evaluation's loss are empty.
std::unique_ptr<logs::Hook> MakeLossMetricHook(logs::BaseBenchmarkLogger* logger, int64_t every_n_steps);

// Returns a hook that times the ops of three steps, the third to fifth of this process or, if it ends before, of those
// there are, and then logs the event "plan" of the fastest of these: for the ops of one type, result and algorithm
// their share of the time, their number and milliseconds; the largest share first. `own_kernels`: the algorithm of ops
// whose kernel names none, "own, AVX-512".
std::unique_ptr<logs::Hook> MakePlanHook(std::string own_kernels);

}  // namespace official::train
