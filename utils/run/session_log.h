// LogStart, LogNothingToDo and LogEnd: what a session says of its run in the log; WhyEnded.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "utils/logs/progress.h"
#include "utils/run/config.h"
#include "utils/run/devices.h"
#include "utils/train/estimator.h"
#include "utils/train/rounds.h"
#include "utils/train/run_state.h"

namespace official::run {

// Logs the event "start", or "resume" of a training that continues: the devices, the strategy, the batch and the data
// of a run of the model of this name. `only_evaluates`: it trains nothing.
void LogStart(const Config& config, const Devices& devices, const std::string& model, const std::string& dataset,
              const train::Estimator& estimator, bool only_evaluates);

// Returns true if the last evaluation, at the present step, has passed --stop_threshold.
bool HasPassedStopThreshold(const Config& config, const train::RunState& state);

// Returns what has ended the training at the present step, before the schedule's end, and how to continue it; empty:
// nothing has. `early_stop`: BestEvaluations::WhyStop; empty: nothing.
std::string WhyEnded(const Config& config, const train::RunState& state, const std::string& early_stop);

// Logs that the training has come to its end before, and how to continue it. `early_stop`: that of WhyEnded.
void LogNothingToDo(const Config& config, const train::Schedule& schedule, const std::string& early_stop,
                    const train::Estimator& estimator);

// Logs what the sums with other workers have cost, if there were any, and the event "end" with what the run did
// ("trained to step 600"), its speed and its peak memory. `outcome`: as PrintEnd has it. `progress` is null where
// nothing counts it.
void LogEnd(const std::string& outcome, absl::string_view what, const train::Estimator& estimator,
            const logs::Progress* progress);

}  // namespace official::run
