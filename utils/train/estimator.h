// Estimator: trains, evaluates, predicts with and exports one model in one model_dir, as tf.estimator.Estimator does.
// official/examples/linear is a program that uses it. The work is done in loop.h (training), evaluation.h and
// checkpointed_model.h (variables and state).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/data/batch.h"
#include "utils/data/held_rows.h"
#include "utils/distribute/strategy.h"
#include "utils/logs/hook.h"
#include "utils/train/batch_memory.h"
#include "utils/train/checkpointed_model.h"
#include "utils/train/config.h"
#include "utils/train/evaluation.h"
#include "utils/train/loop.h"
#include "utils/train/model.h"

namespace official::train {

class Estimator {
 public:
  // Opens model_dir and finds its latest checkpoint. A caller that writes there, as Train and Evaluate do, holds its
  // RunLock (run_lock.h). Errors: the directory cannot be made or written (FailedPrecondition, PermissionDenied), it
  // holds a run on another data set (InvalidArgument), the checkpoint is damaged (DataLoss), there is one with
  // Resume::kNever (FailedPrecondition), or none with Resume::kMust (NotFound).
  static absl::StatusOr<std::unique_ptr<Estimator>> Create(Model model, EstimatorConfig config,
                                                           std::unique_ptr<distribute::Strategy> strategy);

  // Logs which of config's flags, all or those of these names, differ from those of the last training in model_dir, if
  // any do.
  void LogChangedFlags(absl::Span<const std::string> names = {}) const { model_->dir().LogChangedFlags(names); }

  // Returns the position of the run in steps and data, and its seed.
  const RunState& state() const { return model_->state(); }
  int64_t global_step() const { return state().global_step; }
  // Sets the position at which the next Train begins, and those of all workers of a job with parameter servers,
  // whatever the checkpoint says.
  void ContinueAt(data::Position position, std::vector<data::Position> worker_positions = {}) {
    model_->state().position = position;
    model_->state().worker_positions = std::move(worker_positions);
  }
  // Records in model_dir that the evaluation at global_step(), with all that belongs to it, is finished, and with
  // --stop_threshold the metric that this compares.
  absl::Status KeepEvaluatedStep(std::optional<double> metric = std::nullopt);
  // Returns one of the facts by name; there must be one of this name.
  const RunFact& fact(absl::string_view name) const { return model_->fact(name); }
  // The origin of the variables: "fresh" or "resumed from model.ckpt-600".
  const std::string& origin() const { return model_->origin(); }
  const Model& model() const { return model_->model(); }
  const distribute::Strategy& strategy() const { return model_->strategy(); }
  // The rows of each batch that this process computes in a mode: its input functions need not read the others.
  data::HeldRows held_rows(Mode mode) const { return model_->replicas().held_rows(mode); }
  // Returns what a training batch must be a multiple of; 1 if any will do. See Replicas.
  int64_t batch_multiple() const { return model_->replicas().batch_multiple(); }

  // Returns InvalidArgument, with the largest batch that would fit, if the training needs more memory than the host
  // has. Allocates nothing of that size. See train::CheckBatchFits.
  absl::Status CheckBatchFits(const TrainingBatches& batches, int64_t free_bytes = misc::AvailableMemory());

  // Returns the memory that a training step on `batch` takes; `spec` is that of its examples.
  absl::StatusOr<TrainingMemory> MemoryOfTraining(const data::ElementSpec& spec, const data::Batch& batch) {
    return train::MemoryOfTraining(*model_, spec, batch);
  }

  // Takes the state and the variables from the latest checkpoint, which another process has written since, if there is
  // one. Errors: as Create's for a checkpoint.
  absl::Status Reload() { return model_->Reload(); }

  // Trains on batches from state().position on, until the source ends or global_step() reaches max_steps. Saves a
  // checkpoint at the start of a new run, as configured in between, and at the end, even after an error of the source.
  // Cancelled, after saving, if it was interrupted; a step that had not begun to update variables is then abandoned,
  // and repeated by the run that resumes. Where the whole training ends, the chief of a job with parameter servers
  // waits for the other workers before the last checkpoint.
  absl::Status Train(const InputFn& input_fn, std::optional<int64_t> max_steps,
                     absl::Span<const std::unique_ptr<logs::Hook>> hooks,
                     TrainingEnds training_ends = TrainingEnds::kAtMaxSteps);

  // With parameter servers: makes the updates of the workers, as one of the servers, until all workers have ended their
  // runs. `spec` is that of the examples. Cancelled if it was interrupted, or another task without which the job cannot
  // go on is lost.
  absl::Status Serve(const data::ElementSpec& spec);
  // The same for the chief, where it had nothing to train: waits for the other workers.
  absl::Status WaitForOtherWorkers() { return model_->WaitForOtherWorkers().status(); }
  // The same for a worker, after all else: tells the others that it ends its run.
  absl::Status LeaveServers();

  // Why Train or Evaluate was Cancelled, with several workers: those that were asked to stop, by their place in the
  // exchange, or a worker that waits to take part, for which the training stops at a checkpoint.
  const std::vector<int>& stopped_by() const { return model_->agreement().stopped_by(); }
  bool stopped_for_late_worker() const { return model_->agreement().stopped_for_late_worker(); }

  // Evaluates one pass over the source, at most max_steps batches, and writes the results as events in model_dir/eval.
  // The loss is the mean that eval_loss says.
  // Cancelled if it was interrupted. If a loss is not finite, the error names the first tensor that is not: DataLoss
  // for a variable of the checkpoint that the run began with, else Internal.
  absl::StatusOr<EvalResults> Evaluate(const InputFn& input_fn, std::optional<int64_t> max_steps,
                                       EvalLoss eval_loss = EvalLoss::kOverBatches);

  // Does what any of the workers has been asked for, between two batches of something else that belongs to an
  // evaluation. All workers call it at the same point. Cancelled if that is to stop, or another worker has failed.
  absl::Status MeetRequests() { return train::MeetRequests(*model_); }

  // Adds samples of the evaluation at global_step() to the events in model_dir/eval, however many there are; nothing
  // where this process writes no evaluations. Errors of the file system.
  absl::Status AddEvalSamples(EvalSamples samples);

  // Returns the predictions for one batch of features, by name in the order of the model. NotFound if nothing was
  // trained; if one is not finite, errors as in Evaluate.
  absl::StatusOr<std::vector<std::pair<std::string, compute::Tensor>>> Predict(const data::ElementSpec& spec,
                                                                               const data::Tensors& features);

  // Returns the model for prediction on a batch of one example in float32, its variables ready to be read. NotFound if
  // nothing was trained, DataLoss if one of its variables is not finite.
  absl::StatusOr<BuiltModel> BuildForExport(const data::ElementSpec& spec);
  // Makes the variables of a graph that was built elsewhere ready to be read, likewise.
  absl::Status LoadVariables(const compute::Graph& graph);
  // Returns the value of a variable: after an evaluation, a prediction or one of the two functions before, and before
  // the next training, that of its moving average if there is one (TrainOptions::ema_decay).
  absl::StatusOr<compute::Tensor> Variable(const std::string& name) const { return model_->replicas().Read(name); }
  // Writes a variable of all replicas of this worker; several workers write the same. NotFound if there is none of this
  // name, InvalidArgument if its type is another.
  absl::Status SetVariable(const std::string& name, const compute::Tensor& value) {
    return model_->replicas().Write(name, value);
  }

 private:
  explicit Estimator(std::unique_ptr<CheckpointedModel> model) : model_(std::move(model)) {}

  const std::unique_ptr<CheckpointedModel> model_;
};

}  // namespace official::train
