#include "utils/logs/hooks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::logs {
namespace {

absl::Status CheckPeriod(absl::string_view hook, const Period& period) {
  if (period.steps.has_value() == period.seconds.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(hook, ": exactly one of a period in steps and a period in seconds must be given."));
  }
  if (period.steps && *period.steps <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(hook, ": the period in steps is ", *period.steps, ", not positive."));
  }
  if (period.seconds && period.seconds->count() <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(hook, ": the period in seconds is ", period.seconds->count(), ", not positive."));
  }
  return absl::OkStatus();
}

absl::Status CheckLogger(absl::string_view hook, const BaseBenchmarkLogger* logger) {
  if (logger != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(hook, ": a benchmark logger must be given."));
}

double TensorValue(const StepInfo& step, const std::string& name) {
  for (const auto& [tensor_name, value] : step.tensors) {
    if (tensor_name == name) return value;
  }
  OFFICIAL_CHECK(false) << "step " << step.global_step << " came without tensor " << name << ", which was asked for";
  return 0;
}

}  // namespace

absl::Status CheckTensors(absl::string_view hook, absl::Span<const std::string> wanted,
                          absl::Span<const std::string> available) {
  for (const std::string& name : wanted) {
    if (std::find(available.begin(), available.end(), name) == available.end()) {
      return absl::InvalidArgumentError(absl::StrCat(hook, ": this model has no tensor '", name, "', only [",
                                                     absl::StrJoin(available, ", "),
                                                     "]. Choose other hooks with --hooks."));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoggingMetricHook>> LoggingMetricHook::Create(std::vector<std::string> tensor_names,
                                                                             BaseBenchmarkLogger* logger,
                                                                             const Period& period, bool at_end) {
  const bool only_at_end = at_end && !period.steps && !period.seconds;
  if (!only_at_end) RETURN_IF_ERROR(CheckPeriod("LoggingMetricHook", period));
  RETURN_IF_ERROR(CheckLogger("LoggingMetricHook", logger));
  return std::unique_ptr<LoggingMetricHook>(new LoggingMetricHook(std::move(tensor_names), logger, period, at_end));
}

LoggingMetricHook::LoggingMetricHook(std::vector<std::string> tensor_names, BaseBenchmarkLogger* logger,
                                     const Period& period, bool at_end)
    : tensor_names_(std::move(tensor_names)),
      logger_(logger),
      only_at_end_(at_end && !period.steps && !period.seconds),
      at_end_(at_end),
      timer_(period) {}

absl::Status LoggingMetricHook::Begin(const TrainStart& start) {
  timer_.Reset();
  local_step_ = 0;
  return CheckTensors("LoggingMetricHook", tensor_names_, start.tensor_names);
}

StepRequest LoggingMetricHook::BeforeStep(int64_t next_step, TimePoint now) {
  triggered_ = !only_at_end_ && timer_.ShouldTrigger(local_step_, now);
  return {.tensors = triggered_ || at_end_};
}

absl::Status LoggingMetricHook::AfterStep(const StepInfo& step) {
  if (triggered_) {
    timer_.Update(local_step_, step.time);
    RETURN_IF_ERROR(LogMetrics(step));
  }
  ++local_step_;
  return absl::OkStatus();
}

absl::Status LoggingMetricHook::End(const StepInfo& last) {
  return at_end_ && local_step_ > 0 ? LogMetrics(last) : absl::OkStatus();
}

absl::Status LoggingMetricHook::LogMetrics(const StepInfo& step) {
  for (const std::string& name : tensor_names_) {
    RETURN_IF_ERROR(
        logger_->LogMetric({.name = name, .value = TensorValue(step, name), .global_step = step.global_step}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExamplesPerSecondHook>> ExamplesPerSecondHook::Create(int64_t batch_size,
                                                                                     BaseBenchmarkLogger* logger,
                                                                                     const Period& period,
                                                                                     int64_t warm_steps) {
  RETURN_IF_ERROR(CheckPeriod("ExamplesPerSecondHook", period));
  RETURN_IF_ERROR(CheckLogger("ExamplesPerSecondHook", logger));
  return std::unique_ptr<ExamplesPerSecondHook>(new ExamplesPerSecondHook(batch_size, logger, period, warm_steps));
}

ExamplesPerSecondHook::ExamplesPerSecondHook(int64_t batch_size, BaseBenchmarkLogger* logger, const Period& period,
                                             int64_t warm_steps)
    : batch_size_(batch_size), logger_(logger), warm_steps_(warm_steps), timer_(period) {}

absl::Status ExamplesPerSecondHook::Begin(const TrainStart& start) {
  if (ended_) timer_.SkipTime(start.time - *ended_);
  return absl::OkStatus();
}

absl::Status ExamplesPerSecondHook::AfterStep(const StepInfo& step) {
  if (step.global_step <= warm_steps_ || !timer_.ShouldTrigger(step.global_step, step.time)) return absl::OkStatus();
  const std::optional<SecondOrStepTimer::Elapsed> elapsed = timer_.Update(step.global_step, step.time);
  if (!elapsed) return absl::OkStatus();
  total_.steps += elapsed->steps;
  total_.time += elapsed->time;
  const auto examples_per_sec = [&](const SecondOrStepTimer::Elapsed& e) {
    return batch_size_ * (e.steps / e.time.count());
  };
  RETURN_IF_ERROR(logger_->LogMetric(
      {.name = "average_examples_per_sec", .value = examples_per_sec(total_), .global_step = step.global_step}));
  return logger_->LogMetric(
      {.name = "current_examples_per_sec", .value = examples_per_sec(*elapsed), .global_step = step.global_step});
}

absl::Status ExamplesPerSecondHook::End(const StepInfo& last) {
  ended_ = last.time;
  return absl::OkStatus();
}

ProfilerHook::ProfilerHook(std::string output_dir, int64_t save_steps)
    : output_dir_(std::move(output_dir)), timer_({.steps = save_steps}) {}

absl::Status ProfilerHook::Begin(const TrainStart& start) {
  timer_.Reset();
  return absl::OkStatus();
}

StepRequest ProfilerHook::BeforeStep(int64_t next_step, TimePoint now) {
  triggered_ = timer_.ShouldTrigger(next_step, now);
  return {.trace = triggered_, .event_trace = triggered_};
}

absl::Status ProfilerHook::AfterStep(const StepInfo& step) {
  if (!triggered_) return absl::OkStatus();
  timer_.Update(step.global_step, step.time);
  const std::string path = absl::StrCat(output_dir_, "/timeline-", step.global_step, ".json");
  LOG(INFO) << "Saving timeline for " << step.global_step << " into '" << path << "'.";
  return WriteChromeTrace(path, step.trace);
}

}  // namespace official::logs
