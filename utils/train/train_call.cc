// Estimator::Train: the loop over steps, and what is shown and saved of them.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "utils/compute/core/status.h"
#include "utils/logs/events.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/train/estimator.h"
#include "utils/train/summary/graph_summary.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;
using Clock = std::chrono::steady_clock;

constexpr int64_t kShownImages = 6;  // of a batch

// Timings as a trace whose first kernel starts at `start_us`, microseconds since 1970.
logs::DeviceTrace TraceOf(const std::vector<compute::KernelTiming>& timings, int64_t start_us,
                          absl::string_view device) {
  logs::DeviceTrace trace{.device = absl::StrCat("/device:", absl::AsciiStrToUpper(device))};
  for (const compute::KernelTiming& t : timings) {
    trace.events.push_back({.name = t.name,
                            .op = t.op,
                            .start_us = start_us + (t.start_ns - timings[0].start_ns) / 1000,
                            .duration_us = t.duration_ns / 1000});
  }
  return trace;
}

}  // namespace

class Estimator::TrainCall {
 public:
  TrainCall(Estimator& estimator, absl::Span<const std::unique_ptr<logs::Hook>> hooks)
      : e_(estimator),
        hooks_(hooks),
        recent_(estimator.strategy_->device(0).uses_host_memory() ? 1 : compute::kMaxRunsBehind + 1),
        summary_step_(estimator.global_step_) {
    const int turns = estimator.config_.grad_accum_steps;
    for (StepFeeds& feeds : recent_) {
      feeds.runs.resize(turns > 1 ? turns + 1 : 1);
      for (RunFeeds& run : feeds.runs) run.replicas.resize(estimator.strategy_->num_replicas());
    }
  }

  // Waits until there is a batch, or the data's end or error, and obeys interruptions meanwhile.
  absl::Status WaitForData(data::BatchSource& source);
  // Before the first step, when its program is known.
  absl::Status Begin(const ReplicatedProgram& program);
  // `program` is the one that updates the variables.
  absl::Status Step(const data::ElementSpec& spec, const data::Batch& batch, ReplicatedProgram& program,
                    Clock::time_point wait_start);
  absl::Status End();
  // An error of Step or End: if it is that a number is not finite, the one of the step that failed, naming the first
  // tensor with such a number.
  absl::Status Explain(const absl::Status& error);
  bool begun() const { return begun_; }
  bool stopped() const { return stopped_; }

 private:
  using Scalars = std::vector<std::pair<std::string, double>>;
  struct ReplicaFeeds {
    Tensor random_state{DType::kInt64, {3}};
    Tensor learning_rate{DType::kFloat32, {}};
    Tensor weight{DType::kFloat32, {}};
    Tensor turn_weight{DType::kFloat32, {}};
    Tensor add{DType::kBool, {}};
    std::vector<Tensor> tensors;
  };
  struct RunFeeds {
    ReplicatedProgram* program = nullptr;
    std::vector<ReplicaFeeds> replicas;
  };
  // What a step was run with.
  struct StepFeeds {
    int64_t number = 0;  // the global step that it ends with
    data::Batch batch;   // which the tensors are views of
    size_t num_runs = 0;
    std::vector<RunFeeds> runs;  // the turns, if there are several, and last the update; the first num_runs have begun
  };

  std::string WaitTitle() const { return absl::StrCat("waiting for the data of step ", e_.global_step_ + 1); }
  logs::StepRequest AskHooks(Clock::time_point now);
  // learning_rate, the model's logged values and its metrics.
  absl::StatusOr<Scalars> Shown(const ReplicatedProgram& program, float learning_rate);
  absl::Status WriteSummary(const data::Batch& batch, double loss);
  StepFeeds& FeedsOf(int64_t step) { return recent_[step % static_cast<int64_t>(recent_.size())]; }
  // `turn`: the number of its run.
  void SetFeeds(RunFeeds& run, size_t turn, int r, float learning_rate);
  absl::Status RunNext(StepFeeds& step, ReplicatedProgram& program, float learning_rate, bool trace);
  // Runs all of a step. Cancelled, no variable but sums changed, if a stop is wanted before it updates them.
  absl::Status RunAll(const data::ElementSpec& spec, ReplicatedProgram& program, float learning_rate, bool trace,
                      StepFeeds& step);
  // Of the last run: false if its gradients were not finite and a dynamic loss scale is lower now.
  absl::StatusOr<bool> Updated(const ReplicatedProgram& program);
  std::string Advice() const;  // for numbers that are not finite
  // Stops or saves, as it is wanted outside or due, or does neither.
  absl::Status MeetInterruption(bool save_is_due);

  Estimator& e_;
  const absl::Span<const std::unique_ptr<logs::Hook>> hooks_;
  // Of the steps whose errors may not be known yet, by the remainder of the step.
  std::vector<StepFeeds> recent_;
  std::vector<compute::KernelTiming> timings_;
  Scalars shown_;
  std::vector<std::string> tags_;             // of shown_, in event files
  logs::StepInfo info_;                       // of the last step
  ReplicatedProgram* last_update_ = nullptr;  // of the last step; null if it was left or skipped
  bool begun_ = false, stopped_ = false;
  bool left_step_ = false;  // stopped in the middle of a step
  Clock::time_point save_time_ = Clock::now(), summary_time_ = save_time_;
  int64_t summary_step_;
};

absl::Status Estimator::TrainCall::WaitForData(data::BatchSource& source) {
  std::optional<logs::TaskProgress> progress;  // begins when the first wait was in vain
  while (!stopped_ && !source.WaitUntilReady(kAskInterval)) {
    if (!progress) progress.emplace(logs::TaskProgressOptions{.title = WaitTitle()});
    RETURN_IF_ERROR(MeetInterruption(/*save_is_due=*/false));
  }
  return absl::OkStatus();
}

absl::Status Estimator::TrainCall::Begin(const ReplicatedProgram& program) {
  begun_ = true;
  info_.global_step = e_.global_step_;
  std::vector<std::string> names = {"learning_rate"};
  const BuiltModel& model = program.model();
  names.insert(names.end(), model.fetch_names.begin() + 1, model.fetch_names.end());
  tags_ = {e_.model_.learning_rate_tag};
  tags_.insert(tags_.end(), model.fetch_tags.begin() + 1, model.fetch_tags.end());
  for (const auto& metric : model.metrics) {
    names.push_back(metric.name);
    tags_.push_back(metric.summary_tag);
  }
  for (const auto& hook : hooks_) {
    RETURN_IF_ERROR(hook->Begin({.global_step = e_.global_step_, .tensor_names = names, .time = Clock::now()}));
  }
  RETURN_IF_ERROR(e_.replicas_.ResetSums());
  if (e_.train_events_ == nullptr) {
    ASSIGN_OR_RETURN(EventWriter* const events, e_.TrainEvents());
    RETURN_IF_ERROR(events->AddGraphDef(GraphDefOf(*model.graph)));
    RETURN_IF_ERROR(events->AddSessionLog(e_.global_step_, EventWriter::SessionStatus::kStart));
    RETURN_IF_ERROR(e_.KeepFlags());
  }
  return e_.SaveCheckpoint();
}

logs::StepRequest Estimator::TrainCall::AskHooks(Clock::time_point now) {
  logs::StepRequest request;
  for (const auto& hook : hooks_) {
    const logs::StepRequest wanted = hook->BeforeStep(e_.global_step_ + 1, now);
    request.loss |= wanted.loss;
    request.tensors |= wanted.tensors;
    request.trace |= wanted.trace;
  }
  return request;
}

absl::StatusOr<Estimator::TrainCall::Scalars> Estimator::TrainCall::Shown(const ReplicatedProgram& program,
                                                                          float learning_rate) {
  Scalars shown = {{"learning_rate", learning_rate}};
  const BuiltModel& model = program.model();
  for (size_t i = 1; i < model.fetch_names.size(); ++i) {
    ASSIGN_OR_RETURN(const double value, program.MeanFetch(static_cast<int>(i)));
    shown.emplace_back(model.fetch_names[i], value);
  }
  for (const auto& metric : model.metrics) {
    ASSIGN_OR_RETURN(const double value, e_.replicas_.MetricValue(metric));
    shown.emplace_back(metric.name, value);
  }
  return shown;
}

absl::Status Estimator::TrainCall::WriteSummary(const data::Batch& batch, double loss) {
  std::vector<EventWriter::Scalar> scalars = {{"loss", static_cast<float>(loss)}};
  for (size_t i = 0; i < shown_.size(); ++i) scalars.emplace_back(tags_[i], static_cast<float>(shown_[i].second));
  if (summary_step_ > 0) {
    const std::chrono::duration<double> elapsed = info_.time - summary_time_;
    scalars.emplace_back("global_step/sec",
                         static_cast<float>(static_cast<double>(e_.global_step_ - summary_step_) / elapsed.count()));
  }
  summary_time_ = info_.time;
  summary_step_ = e_.global_step_;
  RETURN_IF_ERROR(e_.train_events_->AddScalars(e_.global_step_, scalars));
  if (!e_.model_.image_feature) return absl::OkStatus();
  return e_.train_events_->AddImages(e_.global_step_, "images", batch.features[*e_.model_.image_feature], kShownImages);
}

// What replica `r` feeds: see BuiltModel::roots.
void Estimator::TrainCall::SetFeeds(RunFeeds& run, size_t turn, int r, float learning_rate) {
  const ReplicatedProgram::Replica& replica = run.program->replicas[r];
  const bool is_turn = replica.model->part == StepPart::kTurn;
  ReplicaFeeds& feeds = run.replicas[r];
  feeds.tensors.clear();
  if (replica.model->has_examples || replica.model->stands_in) {
    AppendTensors(replica.share, feeds.tensors);
    int64_t* const random = feeds.random_state.data<int64_t>();
    random[0] = static_cast<int64_t>(e_.config_.seed);
    random[1] = e_.global_step_;
    random[2] = replica.share.examples.begin;
    feeds.tensors.push_back(feeds.random_state);
    if (run.program->replicas.size() > 1) {
      *feeds.weight.data<float>() = replica.model->has_examples ? run.program->Weight(replica) : 0;
      feeds.tensors.push_back(feeds.weight);
    }
    if (is_turn) {
      *feeds.turn_weight.data<float>() = run.program->turn_weight;
      feeds.tensors.push_back(feeds.turn_weight);
    }
  }
  if (is_turn) {
    *feeds.add.data<bool>() = turn > 0;
    feeds.tensors.push_back(feeds.add);
    return;
  }
  *feeds.learning_rate.data<float>() = learning_rate;
  feeds.tensors.push_back(feeds.learning_rate);
}

absl::Status Estimator::TrainCall::RunNext(StepFeeds& step, ReplicatedProgram& program, float learning_rate,
                                           bool trace) {
  const size_t number = step.num_runs++;
  RunFeeds& run = step.runs[number];
  run.program = &program;
  return e_.strategy_->Run([&](int r) {
    SetFeeds(run, number, r, learning_rate);
    return program.replicas[r].program->Run(
        run.replicas[r].tensors, {.timings = trace && r == 0 ? &timings_ : nullptr, .stop = e_.config_.stop});
  });
}

absl::Status Estimator::TrainCall::RunAll(const data::ElementSpec& spec, ReplicatedProgram& program,
                                          float learning_rate, bool trace, StepFeeds& step) {
  for (int turn = 0; turn < static_cast<int>(step.runs.size()) - 1; ++turn) {
    if (e_.StopIsWanted()) return absl::CancelledError("stopped between two turns");
    ASSIGN_OR_RETURN(ReplicatedProgram* const of_turn, e_.ProgramFor(Mode::kTrain, spec, step.batch, turn));
    RETURN_IF_ERROR(RunNext(step, *of_turn, learning_rate, trace));
  }
  return RunNext(step, program, learning_rate, trace);
}

// The step that failed again, slowly. It changed no variable of its replica, nor did those after it that the device was
// given before it told: so the variables still count the steps before it, and where replicas differ, because one has
// failed on what another had spoilt, the one that counts the fewest was first.
absl::Status Estimator::TrainCall::Explain(const absl::Status& error) {
  if (!begun_ || !absl::IsOutOfRange(error)) return error;
  distribute::Strategy& strategy = *e_.strategy_;
  std::vector<int64_t> good_steps;
  for (int r = 0; r < strategy.num_replicas(); ++r) {
    strategy.device(r).Synchronize().IgnoreError();  // it may have the same to tell
    ASSIGN_OR_RETURN(const Tensor steps, e_.replicas_.Read(kGlobalStep, r));
    good_steps.push_back(steps.scalar<int64_t>());
  }
  e_.global_step_ = *std::min_element(good_steps.begin(), good_steps.end());
  const StepFeeds& step = FeedsOf(e_.global_step_ + 1);
  absl::Status found;
  if (step.number == e_.global_step_ + 1) {
    // Sums that are not finite are a consequence.
    if (step.runs.size() > 1) RETURN_IF_ERROR(e_.replicas_.ResetSums());
    const auto again = [&](int r) -> absl::Status {
      if (good_steps[r] != e_.global_step_) return absl::OkStatus();
      for (size_t i = 0; i < step.num_runs; ++i) {
        const RunFeeds& run = step.runs[i];
        RETURN_IF_ERROR(run.program->replicas[r].program->Run(run.replicas[r].tensors, {.check_numerics = true}));
      }
      return absl::OkStatus();
    };
    found = strategy.Run(again);
    // Where the failure has broken the devices' connections, each gets as far as its own gradients.
    for (int r = 0; absl::IsFailedPrecondition(found) && r < strategy.num_replicas(); ++r) {
      const absl::Status alone = strategy.RunAlone(r, [&] { return again(r); });
      if (absl::IsOutOfRange(alone)) found = alone;
    }
  }
  if (!absl::IsOutOfRange(found)) found = error;
  e_.saver_->Wait().IgnoreError();  // Train tells it
  const std::optional<int64_t> last = e_.saver_->finished_step() ? e_.saver_->finished_step() : e_.restored_step_;
  return absl::InternalError(absl::StrCat(
      "step ", e_.global_step_ + 1, ": ", found.message(), ". Training stops before that reaches a checkpoint (",
      last ? absl::StrCat("the last one is of step ", *last) : "there is none", "). ", Advice()));
}

std::string Estimator::TrainCall::Advice() const {
  const bool half = e_.config_.dtype == DType::kFloat16;
  const std::string lower = absl::StrCat("Try a lower ", e_.model_.learning_rate_flag);
  if (e_.config_.loss_scale.dynamic) return absl::StrCat(lower, half ? " or --dtype=bf16" : "");
  if (e_.config_.loss_scale.value == 1) return lower;
  return absl::StrCat(lower, ", a lower --loss_scale or --loss_scale=dynamic");
}

absl::StatusOr<bool> Estimator::TrainCall::Updated(const ReplicatedProgram& program) {
  const std::optional<int> fetch = program.model().updated_fetch;
  if (!fetch) return true;
  ASSIGN_OR_RETURN(const Tensor updated, program.replicas[0].program->Fetch(*fetch));
  if (updated.scalar<bool>()) return true;
  ASSIGN_OR_RETURN(const Tensor scale, e_.replicas_.Read(kLossScale));
  logs::LogEvent("skip",
                 absl::StrCat("step ", e_.global_step_ + 1,
                              ": gradients that are not finite; the batch is skipped and the loss scale is now ",
                              scale.scalar<float>()),
                 {{"global_step", e_.global_step_}, {"loss_scale", scale.scalar<float>()}});
  return false;
}

absl::Status Estimator::TrainCall::Step(const data::ElementSpec& spec, const data::Batch& batch,
                                        ReplicatedProgram& program, Clock::time_point wait_start) {
  const Clock::time_point start = Clock::now();
  const logs::StepRequest request = AskHooks(start);
  const auto learning_rate = static_cast<float>(e_.model_.learning_rate(e_.global_step_));
  timings_.clear();
  const int64_t trace_start_us = request.trace ? absl::ToUnixMicros(absl::Now()) : 0;
  StepFeeds& feeds = FeedsOf(e_.global_step_ + 1);
  feeds.number = e_.global_step_ + 1;
  feeds.batch = batch;
  feeds.num_runs = 0;
  last_update_ = nullptr;
  const absl::Status computed = RunAll(spec, program, learning_rate, request.trace, feeds);
  // Neither the step nor its batch counts.
  stopped_ = left_step_ = absl::IsCancelled(computed) && e_.StopIsWanted();
  if (left_step_) return absl::OkStatus();
  RETURN_IF_ERROR(computed);
  e_.position_ = batch.next;
  ASSIGN_OR_RETURN(const bool updated, Updated(program));
  // A step without an update has no number, so hooks and events do not see it.
  if (!updated) return MeetInterruption(/*save_is_due=*/false);
  ++e_.global_step_;
  last_update_ = &program;

  info_ = {.global_step = e_.global_step_,
           .epoch = batch.first.epoch + 1,
           .examples = batch.num_examples,
           .data_wait = start - wait_start,
           .time = Clock::now()};
  const bool summary = e_.global_step_ % e_.config_.save_summary_steps == 0 || e_.global_step_ == 1;
  double loss = 0;
  if (request.loss || summary) {
    ASSIGN_OR_RETURN(loss, program.MeanFetch(0));
  }
  if (request.loss) info_.loss = loss;
  if (request.tensors || summary) {
    ASSIGN_OR_RETURN(shown_, Shown(program, learning_rate));
    info_.tensors = shown_;
  }
  logs::DeviceTrace trace;
  if (request.trace) {
    trace = TraceOf(timings_, trace_start_us, e_.strategy_->device(0).name());
    info_.trace = absl::MakeConstSpan(&trace, 1);
    RETURN_IF_ERROR(e_.train_events_->AddRunMetadata(e_.global_step_, absl::StrCat("step_", e_.global_step_),
                                                     RunMetadataOf(info_.trace)));
  }
  for (const auto& hook : hooks_) RETURN_IF_ERROR(hook->AfterStep(info_));
  info_.trace = {};
  if (summary) RETURN_IF_ERROR(WriteSummary(batch, loss));

  if (e_.global_step_ % e_.config_.check_replicas_steps == 0) RETURN_IF_ERROR(e_.replicas_.CheckEqual());
  return MeetInterruption(e_.config_.save_checkpoints_steps
                              ? e_.global_step_ % *e_.config_.save_checkpoints_steps == 0
                              : info_.time - save_time_ >= std::chrono::seconds(e_.config_.save_checkpoints_secs));
}

absl::Status Estimator::TrainCall::MeetInterruption(bool save_is_due) {
  const Interruption interruption = e_.config_.interruption();
  stopped_ = interruption == Interruption::kStop;
  const bool asked = interruption == Interruption::kSave;
  if ((save_is_due || asked) && !stopped_ && begun_) {
    save_time_ = info_.time;
    RETURN_IF_ERROR(e_.SaveCheckpoint());
  }
  if (!asked) return absl::OkStatus();
  // Who asked wants to know when it is there. Before the first step of a new run nothing is to be lost.
  RETURN_IF_ERROR(e_.saver_->Wait());
  if (e_.saved_step_ == e_.global_step_) e_.TellSaved();
  return absl::OkStatus();
}

absl::Status Estimator::TrainCall::End() {
  if (!begun_) {
    return stopped_ ? absl::CancelledError(absl::StrCat("stopped before step ", e_.global_step_ + 1, " had its data"))
                    : absl::OkStatus();
  }
  const Clock::time_point start = Clock::now();
  RETURN_IF_ERROR(e_.SaveCheckpoint());
  RETURN_IF_ERROR(e_.saver_->Wait());
  if (last_update_ != nullptr && !info_.loss) {
    ASSIGN_OR_RETURN(info_.loss, last_update_->MeanFetch(0));
  }
  info_.time = Clock::now();
  for (const auto& hook : hooks_) RETURN_IF_ERROR(hook->End(info_));
  RETURN_IF_ERROR(e_.train_events_->Flush());
  if (!stopped_) return absl::OkStatus();
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(info_.time - start);
  return absl::CancelledError(
      absl::StrCat("stopped at step ", e_.global_step_,
                   left_step_ ? absl::StrCat(" in the middle of step ", e_.global_step_ + 1) : "",
                   "; its checkpoint was saved in ", elapsed.count(), " ms, and the same command goes on from it"));
}

absl::Status Estimator::Train(const InputFn& input_fn, std::optional<int64_t> max_steps,
                              absl::Span<const std::unique_ptr<logs::Hook>> hooks) {
  if (max_steps && global_step_ >= *max_steps) {
    logs::LogEvent(
        "skip", absl::StrCat("Skipping training since max_steps has already been reached: global step ", global_step_),
        {{"global_step", global_step_}});
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_fn(position_));
  TrainCall call(*this, hooks);
  const auto run = [&]() -> absl::Status {
    while (!call.stopped() && (!max_steps || global_step_ < *max_steps)) {
      const Clock::time_point wait_start = Clock::now();
      RETURN_IF_ERROR(call.WaitForData(*source));
      if (call.stopped()) break;
      const absl::StatusOr<std::optional<data::Batch>> batch = source->Next();
      if (!batch.ok()) {
        // What was trained until here is sound, and worth more than the last regular checkpoint. How that went is told
        // below.
        if (call.begun()) SaveCheckpoint().IgnoreError();
        return batch.status();
      }
      if (!*batch) break;
      ASSIGN_OR_RETURN(ReplicatedProgram* const program, ProgramFor(Mode::kTrain, source->spec(), **batch));
      if (!call.begun()) RETURN_IF_ERROR(call.Begin(*program));
      RETURN_IF_ERROR(call.Step(source->spec(), **batch, *program, wait_start));
    }
    return call.End();
  };
  const absl::Status status = call.Explain(run());
  // The checkpoint that is being written is finished, and its error told, whatever ended the training.
  const absl::Status saved = saver_->Wait();
  if (status.ok() || saved.ok() || status == saved) return status.ok() ? saved : status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ". Before that: ", saved.message()));
}

}  // namespace official::train
