// Estimator::Train: the loop over steps, and what is shown and saved of them.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/train/estimator.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;
using Clock = std::chrono::steady_clock;

// Timings as a trace whose first kernel starts at `start_us`, microseconds since 1970.
logs::DeviceTrace TraceOf(const std::vector<compute::KernelTiming>& timings, int64_t start_us) {
  logs::DeviceTrace trace{.device = "/device:CPU:0"};
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
      : e_(estimator), hooks_(hooks), summary_step_(estimator.global_step_) {}

  // Before the first step, when its program is known.
  absl::Status Begin(const Compiled& compiled);
  absl::Status Step(const data::Batch& batch, Compiled& compiled, Clock::time_point wait_start);
  absl::Status End();
  bool begun() const { return begun_; }

 private:
  using Scalars = std::vector<std::pair<std::string, double>>;

  logs::StepRequest AskHooks(Clock::time_point now);
  // learning_rate, the model's logged values and its metrics.
  absl::StatusOr<Scalars> Shown(const Compiled& compiled, float learning_rate);
  absl::Status WriteSummary(const Compiled& compiled, double loss);

  Estimator& e_;
  const absl::Span<const std::unique_ptr<logs::Hook>> hooks_;
  const Tensor random_state_{DType::kInt64, {3}};
  const Tensor learning_rate_{DType::kFloat32, {}};
  std::vector<Tensor> feeds_;
  std::vector<compute::KernelTiming> timings_;
  Scalars shown_;
  logs::StepInfo info_;  // of the last step
  bool begun_ = false;
  Clock::time_point save_time_ = Clock::now(), summary_time_ = save_time_;
  int64_t summary_step_;
};

absl::Status Estimator::TrainCall::Begin(const Compiled& compiled) {
  begun_ = true;
  std::vector<std::string> names = {"learning_rate"};
  for (int i = 1; i <= compiled.model.num_logged; ++i) names.push_back(compiled.model.fetch_names[i]);
  for (const auto& metric : compiled.model.metrics) names.push_back(metric.name);
  for (const auto& hook : hooks_) {
    RETURN_IF_ERROR(hook->Begin({.global_step = e_.global_step_, .tensor_names = names, .time = Clock::now()}));
  }
  RETURN_IF_ERROR(e_.ResetMetrics(compiled));
  if (e_.train_events_ == nullptr) {
    ASSIGN_OR_RETURN(EventWriter* const events, e_.TrainEvents());
    RETURN_IF_ERROR(events->AddSessionLog(e_.global_step_, EventWriter::SessionStatus::kStart));
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

absl::StatusOr<Estimator::TrainCall::Scalars> Estimator::TrainCall::Shown(const Compiled& compiled,
                                                                          float learning_rate) {
  Scalars shown = {{"learning_rate", learning_rate}};
  for (int i = 1; i <= compiled.model.num_logged; ++i) {
    ASSIGN_OR_RETURN(const Tensor value, compiled.program->Fetch(i));
    shown.emplace_back(compiled.model.fetch_names[i], value.scalar<float>());
  }
  for (const auto& metric : compiled.model.metrics) {
    ASSIGN_OR_RETURN(const double value, MetricValue(*compiled.program, metric));
    shown.emplace_back(metric.name, value);
  }
  return shown;
}

absl::Status Estimator::TrainCall::WriteSummary(const Compiled& compiled, double loss) {
  std::vector<EventWriter::Scalar> scalars = {{"loss", static_cast<float>(loss)}};
  for (const auto& [name, value] : shown_) {
    const auto metric = std::find_if(compiled.model.metrics.begin(), compiled.model.metrics.end(),
                                     [&n = name](const auto& m) { return m.name == n; });
    scalars.emplace_back(metric == compiled.model.metrics.end() ? name : metric->summary_tag,
                         static_cast<float>(value));
  }
  if (summary_step_ > 0) {
    const std::chrono::duration<double> elapsed = info_.time - summary_time_;
    scalars.emplace_back("global_step/sec",
                         static_cast<float>(static_cast<double>(e_.global_step_ - summary_step_) / elapsed.count()));
  }
  summary_time_ = info_.time;
  summary_step_ = e_.global_step_;
  return e_.train_events_->AddScalars(e_.global_step_, scalars);
}

absl::Status Estimator::TrainCall::Step(const data::Batch& batch, Compiled& compiled, Clock::time_point wait_start) {
  const Clock::time_point start = Clock::now();
  const logs::StepRequest request = AskHooks(start);
  const auto learning_rate = static_cast<float>(e_.model_.learning_rate(e_.global_step_));
  int64_t* const random = random_state_.data<int64_t>();
  random[0] = static_cast<int64_t>(e_.config_.seed);
  random[1] = e_.global_step_;
  random[2] = 0;  // one replica holds the whole batch
  *learning_rate_.data<float>() = learning_rate;
  feeds_.assign(batch.features.begin(), batch.features.end());
  feeds_.insert(feeds_.end(), batch.labels.begin(), batch.labels.end());
  feeds_.push_back(random_state_);
  feeds_.push_back(learning_rate_);

  timings_.clear();
  const int64_t trace_start_us = request.trace ? absl::ToUnixMicros(absl::Now()) : 0;
  RETURN_IF_ERROR(compiled.program->Run(feeds_, request.trace ? &timings_ : nullptr));
  ASSIGN_OR_RETURN(const Tensor loss_tensor, compiled.program->Fetch(0));
  const double loss = loss_tensor.scalar<float>();
  if (!std::isfinite(loss)) {
    return absl::InternalError(
        absl::StrCat("the loss is ", loss, " at step ", e_.global_step_ + 1,
                     "; training stops before that reaches a checkpoint (the last one is of step ",
                     e_.saved_step_.value_or(0), "). Try a lower --learning_rate"));
  }
  ++e_.global_step_;
  e_.position_ = batch.next;

  info_ = {.global_step = e_.global_step_,
           .epoch = batch.first.epoch + 1,
           .examples = batch.num_examples,
           .data_wait = start - wait_start,
           .time = Clock::now()};
  const bool summary = e_.global_step_ % e_.config_.save_summary_steps == 0 || e_.global_step_ == 1;
  if (request.loss) info_.loss = loss;
  if (request.tensors || summary) {
    ASSIGN_OR_RETURN(shown_, Shown(compiled, learning_rate));
    info_.tensors = shown_;
  }
  const logs::DeviceTrace trace = TraceOf(timings_, trace_start_us);
  if (request.trace) info_.trace = absl::MakeConstSpan(&trace, 1);
  for (const auto& hook : hooks_) RETURN_IF_ERROR(hook->AfterStep(info_));
  info_.trace = {};
  if (summary) RETURN_IF_ERROR(WriteSummary(compiled, loss));

  const bool save = e_.config_.save_checkpoints_steps
                        ? e_.global_step_ % *e_.config_.save_checkpoints_steps == 0
                        : info_.time - save_time_ >= std::chrono::seconds(e_.config_.save_checkpoints_secs);
  if (!save) return absl::OkStatus();
  save_time_ = info_.time;
  return e_.SaveCheckpoint();
}

absl::Status Estimator::TrainCall::End() {
  RETURN_IF_ERROR(e_.SaveCheckpoint());
  RETURN_IF_ERROR(e_.saver_->Wait());
  info_.time = Clock::now();
  for (const auto& hook : hooks_) RETURN_IF_ERROR(hook->End(info_));
  return e_.train_events_->Flush();
}

absl::Status Estimator::Train(const InputFn& input_fn, std::optional<int64_t> max_steps,
                              absl::Span<const std::unique_ptr<logs::Hook>> hooks) {
  if (max_steps && global_step_ >= *max_steps) {
    LOG(INFO) << "Skipping training since max_steps has already been reached: global step " << global_step_;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_fn(position_));
  TrainCall call(*this, hooks);
  while (!max_steps || global_step_ < *max_steps) {
    const Clock::time_point wait_start = Clock::now();
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, source->Next());
    if (!batch) break;
    ASSIGN_OR_RETURN(Compiled* const compiled, ProgramFor(Mode::kTrain, source->spec(), batch->num_examples));
    if (!call.begun()) RETURN_IF_ERROR(call.Begin(*compiled));
    RETURN_IF_ERROR(call.Step(*batch, *compiled, wait_start));
  }
  return call.begun() ? call.End() : absl::OkStatus();
}

}  // namespace official::train
