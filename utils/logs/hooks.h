// The training hooks of the official models. Source: tensorflow/models official/utils/logs/{hooks,metric_hook}.py and
// TensorFlow 1.10's basic_session_run_hooks.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/logs/benchmark_logger.h"
#include "utils/logs/hook.h"
#include "utils/logs/second_or_step_timer.h"

namespace official::logs {

// Returns InvalidArgument, naming the hook, if one of the tensors that it needs is not available.
absl::Status CheckTensors(absl::string_view hook, absl::Span<const std::string> wanted,
                          absl::Span<const std::string> available);

// Logs the tensors, in the order given, to `logger` with the global step: at the first step of each train call, then
// every so many steps or seconds; and with `at_end` at the end of the call too.
class LoggingMetricHook : public Hook {
 public:
  // Returns InvalidArgument unless exactly one period is set and positive (none is allowed with at_end), or without a
  // logger. With at_end every step's tensors are fetched, since any step may be the last.
  static absl::StatusOr<std::unique_ptr<LoggingMetricHook>> Create(std::vector<std::string> tensor_names,
                                                                   BaseBenchmarkLogger* logger, const Period& period,
                                                                   bool at_end = false);

  absl::Status Begin(const TrainStart& start) override;  // InvalidArgument if a tensor is missing
  StepRequest BeforeStep(int64_t next_step, TimePoint now) override;
  absl::Status AfterStep(const StepInfo& step) override;
  absl::Status End(const StepInfo& last) override;

 private:
  LoggingMetricHook(std::vector<std::string> tensor_names, BaseBenchmarkLogger* logger, const Period& period,
                    bool at_end);

  absl::Status LogMetrics(const StepInfo& step);

  const std::vector<std::string> tensor_names_;
  BaseBenchmarkLogger* const logger_;
  const bool only_at_end_;
  const bool at_end_;
  SecondOrStepTimer timer_;
  int64_t local_step_ = 0;
  bool triggered_ = false;
};

// Logs average_examples_per_sec (over all periods so far) and current_examples_per_sec (over the last one) to `logger`.
// The first step beyond warm_steps only starts the clock: 5 warm steps and a period of 100 log at steps 106, 206, ...
// Time between train calls is left out.
class ExamplesPerSecondHook : public Hook {
 public:
  // `batch_size` is the global batch. Returns InvalidArgument unless exactly one period is set and positive, or without
  // a logger.
  static absl::StatusOr<std::unique_ptr<ExamplesPerSecondHook>> Create(int64_t batch_size, BaseBenchmarkLogger* logger,
                                                                       const Period& period = {.steps = 100},
                                                                       int64_t warm_steps = 0);

  absl::Status Begin(const TrainStart& start) override;
  absl::Status AfterStep(const StepInfo& step) override;
  absl::Status End(const StepInfo& last) override;

 private:
  ExamplesPerSecondHook(int64_t batch_size, BaseBenchmarkLogger* logger, const Period& period, int64_t warm_steps);

  const int64_t batch_size_;
  BaseBenchmarkLogger* const logger_;
  const int64_t warm_steps_;
  SecondOrStepTimer timer_;
  SecondOrStepTimer::Elapsed total_{0, Seconds(0)};
  std::optional<TimePoint> ended_;  // when the last train call ended
};

// Writes timeline-<global step>.json, a Chrome trace, into `output_dir`: for the first step of each train call, then
// every `save_steps` steps. The step in the name is the one after the update, so a new run starts with timeline-1.json.
class ProfilerHook : public Hook {
 public:
  ProfilerHook(std::string output_dir, int64_t save_steps);

  absl::Status Begin(const TrainStart& start) override;
  StepRequest BeforeStep(int64_t next_step, TimePoint now) override;
  absl::Status AfterStep(const StepInfo& step) override;

 private:
  const std::string output_dir_;
  SecondOrStepTimer timer_;
  bool triggered_ = false;
};

}  // namespace official::logs
