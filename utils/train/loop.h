// The training loop: next batch, step, hooks, save.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/logs/hook.h"
#include "utils/train/checkpointed_model.h"

namespace official::train {

// Trains on batches from state().position on: see Estimator::Train.
absl::Status TrainLoop(CheckpointedModel& model, const InputFn& input_fn, std::optional<int64_t> max_steps,
                       absl::Span<const std::unique_ptr<logs::Hook>> hooks, TrainingEnds training_ends);

}  // namespace official::train
