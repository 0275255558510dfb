// The results that a run prints on standard output: its evaluations and its end.
#pragma once

#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/logs/json.h"
#include "utils/train/config.h"

namespace official::run {

// Prints an object a line: {"event": "evaluation", "accuracy": 0.98, "global_step": 600, "loss": 0.06}. As text, prints
// a Python dictionary, like TensorFlow's official models.
void PrintEvaluation(bool json, const train::EvalResults& results, std::ostream& out);

// Prints the end of a training: "finished", "stop_threshold", "early_stop", "stopped" (by a signal) or "nothing_to_do".
// In JSON, one object:
//   {"event": "end", "status": "finished", "global_step": 600, "steps": 600, "warmup_steps": 5, "examples_per_sec":
//   2066.3}
// and as text nothing, since the log has it.
void PrintEnd(bool json, absl::string_view status, int64_t global_step, const logs::Json::Object& throughput,
              std::ostream& out);

// Returns the result of this name; there must be one.
double MetricOf(absl::Span<const std::pair<std::string, double>> results, absl::string_view name);

}  // namespace official::run
