// EstimatorConfigOf, ScheduleOf, EpochOf, MaxEvalBatches: what the flags and the input of a run say to utils/train, the
// same for a run, its rehearsal and a prediction. CheckExports.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "utils/run/config.h"
#include "utils/run/input.h"
#include "utils/run/session.h"
#include "utils/train/config.h"
#include "utils/train/model_dir.h"
#include "utils/train/rounds.h"

namespace official::run {

// Returns what signals to this process ask its training for, now.
train::Interruption AskSignals();

// It trains unless --eval_only or `use` say otherwise; then the training data are among its facts (training_data.h).
train::EstimatorConfig EstimatorConfigOf(const Config& config, const Input& input, train::ModelDir::Use use,
                                         const SessionOptions& options = {});

train::Schedule ScheduleOf(const Config& config, const SessionOptions& options);

// `batches_per_step`: BatchesPerStep (cluster.h).
train::EpochSize EpochOf(const Config& config, const Input& input, int batches_per_step);

// Returns the largest number of batches that an evaluation reads; unset: all that there are.
std::optional<int64_t> MaxEvalBatches(const Config& config, const SessionOptions& options);

// Returns InvalidArgument for a flag that needs SessionOptions::serving_graph in a program that has none.
absl::Status CheckExports(const Config& config, const SessionOptions& options);

}  // namespace official::run
