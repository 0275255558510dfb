// The evaluation loop, and how forward passes that give numbers that are not finite are explained.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/train/checkpointed_model.h"

namespace official::train {

// The loss of an evaluation is the mean over the batches' losses, as an Estimator's in TensorFlow, or over the
// examples', as a Keras model's. They differ where a batch is smaller than others.
enum class EvalLoss { kOverBatches, kOverExamples };

// Evaluates one pass over the source: see Estimator::Evaluate.
absl::StatusOr<EvalResults> EvaluationLoop(CheckpointedModel& model, const InputFn& input_fn,
                                           std::optional<int64_t> max_steps, EvalLoss eval_loss);

// Does, between two batches of an evaluation, what any of the workers has been asked for. All workers call it at the
// same point. Cancelled if that is to stop, or another worker has failed or is lost.
absl::Status MeetRequests(CheckpointedModel& model);

// Returns the error for a `what` ("the loss") that is not finite in the last run of a program, which changes no
// variables but sums: sets these to 0 and computes it again to name the first tensor that is not.
absl::Status ExplainNonFinite(absl::string_view what, CheckpointedModel& model, ReplicatedProgram& program);

}  // namespace official::train
