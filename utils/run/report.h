// What a run prints on standard output: its evaluations and its end.
#pragma once

#include <ostream>

#include "utils/logs/json.h"
#include "utils/logs/progress.h"
#include "utils/train/estimator.h"

namespace official::run {

// An object a line: {"event": "evaluation", "accuracy": 0.98, "global_step": 600, "loss": 0.06}. As text, a Python
// dictionary, as TensorFlow's official models print it.
void PrintEvaluation(bool json, const train::EvalResults& results, std::ostream& out);

// How a training ended: "finished", "stop_threshold", "stopped" (by a signal) or "nothing_to_do". In JSON, one object:
//   {"event": "end", "status": "finished", "global_step": 600, "steps": 600, "warmup_steps": 5, "examples_per_sec":
//   2066.3}
// and as text nothing: what it tells stands in the log.
void PrintEnd(bool json, absl::string_view status, int64_t global_step, const logs::Json::Object& throughput,
              std::ostream& out);

}  // namespace official::run
