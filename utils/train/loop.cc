#include "utils/train/loop.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/logs/events.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/train/step_runner.h"
#include "utils/train/summaries.h"

namespace official::train {
namespace {

using Clock = std::chrono::steady_clock;

// One train call: the steps between two evaluations.
class Loop {
 public:
  Loop(CheckpointedModel& model, std::optional<int64_t> max_steps, absl::Span<const std::unique_ptr<logs::Hook>> hooks,
       TrainingEnds training_ends)
      : model_(model),
        state_(model.state()),
        config_(model.config()),
        max_steps_(max_steps),
        hooks_(hooks),
        training_ends_(training_ends),
        runner_(model) {}

  absl::Status Run(data::BatchSource& source) {
    const absl::Status status = Steps(source);
    // Cancelled: all workers stop, or another one has failed.
    if (!status.ok() && !absl::IsCancelled(status)) model_.strategy().Fail(status.message());
    return begun() ? runner_.Explain(status) : status;
  }

 private:
  bool begun() const { return summaries_.has_value(); }

  absl::Status Steps(data::BatchSource& source);
  // Returns the status of something beside the computation: data, hooks, the event file. If that ends the training,
  // first saves the steps until here, which are sound, and worth more than the last regular checkpoint.
  absl::Status SaveIfFailed(absl::Status status);
  // Waits until there is a batch, or the data's end or error, and obeys interruptions meanwhile.
  absl::Status WaitForData(data::BatchSource& source);
  // True for the chief of a job with parameter servers that has no batch left, but others may.
  bool only_waits() const {
    return !stopped_ && !begun() && training_ends_ == TrainingEnds::kAtMaxStepsOrData && model_.strategy().is_chief() &&
           model_.strategy().servers() != nullptr;
  }
  // Gives the servers the values with which the other workers go on.
  absl::Status BeginWithoutBatch(const data::ElementSpec& spec);
  // Begins before the first step, when its program is known.
  absl::Status Begin(const ReplicatedProgram& program);
  // What is known of a step before it is computed.
  struct StepStart {
    logs::StepRequest request;
    float learning_rate;
    Clock::time_point time;
    Clock::duration data_wait;
  };
  StepStart BeforeStep(Clock::duration data_wait);
  // Counts the step that was computed on the batch, shows it, and saves or stops as it is wanted.
  absl::Status AfterStep(const absl::Status& computed, const StepStart& start, const data::Batch& batch,
                         ReplicatedProgram& program);
  // Returns the union of what the hooks want to see of the next step.
  logs::StepRequest AskHooks(Clock::time_point now);
  // Returns false if the gradients of the last step were not finite, and a dynamic loss scale is lower now.
  absl::StatusOr<bool> Updated(const ReplicatedProgram& program);
  // Hands the finished step to the hooks and the event file.
  absl::Status Show(const data::Batch& batch, const ReplicatedProgram& program, const StepStart& start,
                    logs::StepInfo& info);
  // Stops or saves, as it is wanted outside or due, or does neither.
  absl::Status MeetInterruption(bool save_is_due);
  void StopForLateWorker();
  // Returns true if the last step, or with parameter servers one of another worker since this one's step before, was a
  // multiple of so many.
  bool Reached(int64_t steps) const { return last_.global_step / steps > step_before_ / steps; }
  bool SaveIsDue() const;
  // True if nothing is trained after this call.
  bool ends_training(bool data_ended) const {
    return (max_steps_reached() && training_ends_ != TrainingEnds::kLater) ||
           (data_ended && training_ends_ == TrainingEnds::kAtMaxStepsOrData);
  }
  bool max_steps_reached() const { return max_steps_ && state_.global_step >= *max_steps_; }
  // With parameter servers, waits for the other workers if nothing is trained after this.
  absl::Status WaitForOtherWorkers();
  absl::Status End();

  CheckpointedModel& model_;
  RunState& state_;
  const EstimatorConfig& config_;
  const std::optional<int64_t> max_steps_;
  const absl::Span<const std::unique_ptr<logs::Hook>> hooks_;
  const TrainingEnds training_ends_;
  StepRunner runner_;
  std::optional<StepSummaries> summaries_;  // from Begin on
  StepSummaries::Scalars shown_;
  std::vector<compute::KernelTiming> timings_;
  logs::StepInfo last_;                       // the last step
  int64_t step_before_ = 0;                   // the global step after the one before it
  ReplicatedProgram* last_update_ = nullptr;  // its update; null if it was left or skipped
  Clock::time_point save_time_ = Clock::now();
  bool stopped_ = false;
  bool save_was_asked_ = false;  // which End makes
  bool left_step_ = false;       // stopped in the middle of a step
};

absl::Status Loop::Steps(data::BatchSource& source) {
  while (!stopped_ && !max_steps_reached()) {
    const Clock::time_point wait_start = Clock::now();
    RETURN_IF_ERROR(WaitForData(source));
    if (stopped_) break;
    const absl::StatusOr<std::optional<data::Batch>> batch = source.Next();
    RETURN_IF_ERROR(SaveIfFailed(batch.status()));
    if (!*batch) break;
    const Clock::duration data_wait = Clock::now() - wait_start;
    ASSIGN_OR_RETURN(ReplicatedProgram* const program, model_.ProgramFor(Mode::kTrain, source.spec(), **batch));
    RETURN_IF_ERROR(model_.ConnectServers(source.spec()));
    RETURN_IF_ERROR(model_.ReadVariables(source.spec(), **batch));
    if (!begun()) RETURN_IF_ERROR(Begin(*program));
    StepStart start = BeforeStep(data_wait);
    RETURN_IF_ERROR(model_.agreement().TakeRequestOfChief(start.request));
    const absl::Status computed =
        runner_.Run(source.spec(), **batch, *program, start.learning_rate, start.request.trace ? &timings_ : nullptr);
    RETURN_IF_ERROR(AfterStep(computed, start, **batch, *program));
  }
  if (only_waits()) RETURN_IF_ERROR(BeginWithoutBatch(source.spec()));
  return End();
}

absl::Status Loop::SaveIfFailed(absl::Status status) {
  // TrainLoop reports how saving them went. Other workers do not know of the error, and would not save with this one.
  if (!status.ok() && begun() && !model_.strategy().has_other_workers()) model_.Save().IgnoreError();
  return status;
}

absl::Status Loop::BeginWithoutBatch(const data::ElementSpec& spec) {
  ASSIGN_OR_RETURN(const ReplicatedProgram* const program,
                   model_.ProgramFor(Mode::kTrain, spec, data::ExampleOfZeros(spec)));
  RETURN_IF_ERROR(model_.ConnectServers(spec));
  return Begin(*program);
}

absl::Status Loop::WaitForData(data::BatchSource& source) {
  std::optional<logs::TaskProgress> progress;  // begins when the first wait was in vain
  while (!stopped_ && !source.WaitUntilReady(kAskInterval)) {
    if (!progress) {
      progress.emplace(
          logs::TaskProgressOptions{.title = absl::StrCat("waiting for the data of step ", state_.global_step + 1)});
    }
    // The others may have their data: with them, requests are met after the step.
    RETURN_IF_ERROR(model_.strategy().has_other_workers() ? model_.strategy().CheckWorkers()
                                                          : MeetInterruption(/*save_is_due=*/false));
  }
  return absl::OkStatus();
}

absl::Status Loop::Begin(const ReplicatedProgram& program) {
  summaries_.emplace(model_, program);
  last_.global_step = state_.global_step;
  for (const auto& hook : hooks_) {
    RETURN_IF_ERROR(
        hook->Begin({.global_step = state_.global_step, .tensor_names = summaries_->names(), .time = Clock::now()}));
  }
  RETURN_IF_ERROR(model_.replicas().ResetSums());
  RETURN_IF_ERROR(model_.dir().BeginTraining(state_.global_step, *program.model().graph));
  return model_.Save();
}

Loop::StepStart Loop::BeforeStep(Clock::duration data_wait) {
  timings_.clear();
  last_update_ = nullptr;
  const Clock::time_point now = Clock::now();
  return {.request = AskHooks(now),
          .learning_rate = static_cast<float>(model_.model().learning_rate(state_.global_step)),
          .time = now,
          .data_wait = data_wait};
}

absl::Status Loop::AfterStep(const absl::Status& computed, const StepStart& start, const data::Batch& batch,
                             ReplicatedProgram& program) {
  // Neither the step nor its batch counts.
  stopped_ = left_step_ = absl::IsCancelled(computed) && model_.StopIsWanted();
  if (left_step_) return absl::OkStatus();
  RETURN_IF_ERROR(computed);
  state_.position = batch.next;
  ASSIGN_OR_RETURN(const bool updated, Updated(program));
  // A step without an update has no number, so hooks and events do not see it.
  if (!updated) return MeetInterruption(/*save_is_due=*/false);
  RETURN_IF_ERROR(model_.FinishStep(start.learning_rate));
  last_update_ = &program;

  step_before_ = last_.global_step;
  last_ = {.global_step = state_.global_step,
           .epoch = batch.first.epoch + 1,
           .examples = batch.num_examples,
           .data_wait = start.data_wait,
           .time = Clock::now()};
  logs::DeviceTrace trace;
  if (start.request.trace) {
    const int64_t ago_us = std::chrono::duration_cast<std::chrono::microseconds>(last_.time - start.time).count();
    trace = TraceOf(timings_, absl::ToUnixMicros(absl::Now()) - ago_us, model_.strategy().device(0).name());
    last_.trace = absl::MakeConstSpan(&trace, 1);
    if (start.request.event_trace) RETURN_IF_ERROR(SaveIfFailed(summaries_->WriteTrace(last_.trace)));
  }
  RETURN_IF_ERROR(Show(batch, program, start, last_));
  last_.trace = {};
  if (Reached(config_.check_replicas_steps)) RETURN_IF_ERROR(model_.replicas().CheckEqual());
  return MeetInterruption(SaveIsDue());
}

logs::StepRequest Loop::AskHooks(Clock::time_point now) {
  logs::StepRequest request;
  for (const auto& hook : hooks_) {
    const logs::StepRequest wanted = hook->BeforeStep(state_.global_step + 1, now);
    request.loss |= wanted.loss;
    request.tensors |= wanted.tensors;
    request.trace |= wanted.trace;
    request.event_trace |= wanted.event_trace;
  }
  return request;
}

absl::StatusOr<bool> Loop::Updated(const ReplicatedProgram& program) {
  const std::optional<int> fetch = program.model().updated_fetch;
  if (!fetch) return true;
  ASSIGN_OR_RETURN(const compute::Tensor updated, program.replicas[0].program->Fetch(*fetch));
  if (updated.scalar<bool>()) return true;
  ASSIGN_OR_RETURN(const compute::Tensor scale, model_.replicas().Read(kLossScale));
  logs::LogEvent("skip",
                 absl::StrCat("step ", state_.global_step + 1,
                              ": gradients that are not finite; the batch is skipped and the loss scale is now ",
                              scale.scalar<float>()),
                 {{"global_step", state_.global_step + 1}, {"loss_scale", scale.scalar<float>()}});
  return false;
}

absl::Status Loop::Show(const data::Batch& batch, const ReplicatedProgram& program, const StepStart& start,
                        logs::StepInfo& info) {
  const bool summary = Reached(config_.log_every_n_steps) || info.global_step == 1;
  summaries_->CountDataWait(start.data_wait);
  double loss = 0;
  if (start.request.loss || summary) {
    ASSIGN_OR_RETURN(loss, model_.replicas().MeanFetch(program, 0));
  }
  if (start.request.loss) info.loss = loss;
  if (start.request.tensors || summary) {
    ASSIGN_OR_RETURN(shown_, summaries_->Read(program, start.learning_rate));
    info.tensors = shown_;
  }
  for (const auto& hook : hooks_) RETURN_IF_ERROR(SaveIfFailed(hook->AfterStep(info)));
  return summary ? SaveIfFailed(summaries_->Write(batch, loss, shown_, info.time)) : absl::OkStatus();
}

bool Loop::SaveIsDue() const {
  // Other workers may still be training on their parts: End waits for them before the checkpoint that says that all is
  // trained.
  const bool may_be_last = ends_training(/*data_ended=*/state_.position.index == 0);
  if (model_.has_servers() && may_be_last) return false;
  if (config_.save_checkpoints_steps) return Reached(*config_.save_checkpoints_steps);
  return last_.time - save_time_ >= std::chrono::seconds(config_.save_checkpoints_secs);
}

absl::Status Loop::MeetInterruption(bool save_is_due) {
  ASSIGN_OR_RETURN(const WorkerAgreement::Agreed agreed, model_.agreement().Agree(save_is_due));
  stopped_ = agreed.interruption == Interruption::kStop;
  if (stopped_) return absl::OkStatus();  // End saves
  const bool save_is_asked = agreed.interruption == Interruption::kSave;
  // Before the first step of a new run nothing is to be lost.
  if (begun() && (agreed.save_is_due || save_is_asked)) {
    if (agreed.late_workers) {
      StopForLateWorker();
      save_was_asked_ = save_is_asked;
      return absl::OkStatus();  // End saves
    }
    save_time_ = Clock::now();
    RETURN_IF_ERROR(model_.Save());
  }
  return save_is_asked ? model_.ReportSave() : absl::OkStatus();
}

void Loop::StopForLateWorker() {
  stopped_ = true;
  model_.agreement().StopForLateWorker();
}

absl::Status Loop::WaitForOtherWorkers() {
  // What they have done since this worker's last step counts.
  RETURN_IF_ERROR(model_.ReadGlobalStep());
  const bool data_ended = !max_steps_reached();
  if (stopped_ || !ends_training(data_ended)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool all_are_done, model_.WaitForOtherWorkers());
  stopped_ = !all_are_done;
  if (all_are_done && data_ended) model_.EndData();
  return absl::OkStatus();
}

absl::Status Loop::End() {
  if (!begun()) {
    return stopped_
               ? absl::CancelledError(absl::StrCat("stopped before step ", state_.global_step + 1, " had its data"))
               : absl::OkStatus();
  }
  const Clock::time_point start = Clock::now();
  if (!stopped_ && model_.strategy().has_other_workers()) {
    ASSIGN_OR_RETURN(const WorkerAgreement::Agreed agreed, model_.agreement().Agree(/*save_is_due=*/true));
    if (agreed.late_workers && !max_steps_reached()) StopForLateWorker();
    save_was_asked_ = agreed.interruption == Interruption::kSave;
  }
  RETURN_IF_ERROR(WaitForOtherWorkers());
  RETURN_IF_ERROR(model_.Save());
  RETURN_IF_ERROR(model_.dir().WaitForSave());
  if (save_was_asked_) model_.LogSavedOnRequest();
  if (last_update_ != nullptr && !last_.loss) {
    ASSIGN_OR_RETURN(last_.loss, model_.replicas().MeanFetch(*last_update_, 0));
  }
  last_.time = Clock::now();
  for (const auto& hook : hooks_) RETURN_IF_ERROR(hook->End(last_));
  RETURN_IF_ERROR(summaries_->Flush());
  if (!stopped_) return absl::OkStatus();
  if (model_.has_servers() && !model_.dir().writes()) {
    return absl::CancelledError(
        absl::StrCat("stopped at step ", state_.global_step, "; the other workers train on without this one"));
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(last_.time - start);
  return absl::CancelledError(
      absl::StrCat("stopped at step ", state_.global_step,
                   left_step_ ? absl::StrCat(" in the middle of step ", state_.global_step + 1) : "",
                   "; its checkpoint was saved in ", elapsed.count(), " ms, and ",
                   model_.agreement().stopped_for_late_worker()
                       ? "another worker takes part from there on"
                       : absl::StrCat(model_.config().what_continues, " continues from it")));
}

}  // namespace

absl::Status TrainLoop(CheckpointedModel& model, const InputFn& input_fn, std::optional<int64_t> max_steps,
                       absl::Span<const std::unique_ptr<logs::Hook>> hooks, TrainingEnds training_ends) {
  const int64_t global_step = model.state().global_step;
  if (max_steps && global_step >= *max_steps) {
    logs::LogEvent(
        "skip", absl::StrCat("Skipping training since max_steps has already been reached: global step ", global_step),
        {{"global_step", global_step}});
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_fn(model.state().position));
  const absl::Status status = Loop(model, max_steps, hooks, training_ends).Run(*source);
  // The checkpoint that is being written is finished, and its error reported, whatever ended the training.
  const absl::Status saved = model.dir().WaitForSave();
  if (status.ok() || saved.ok() || status == saved) return status.ok() ? saved : status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ". Also: ", saved.message()));
}

}  // namespace official::train
