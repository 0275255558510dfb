#include "utils/train/train_hooks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/logs/events.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/logs/op_table.h"
#include "utils/misc/program_start.h"

namespace official::train {
namespace {

class FirstStepHook : public logs::Hook {
 public:
  absl::Status AfterStep(const logs::StepInfo&) override {
    if (!done_) {
      LOG(INFO) << "first training step done " << std::lround(1e3 * misc::SecondsSinceProgramStart())
                << " ms after process start";
    }
    done_ = true;
    return absl::OkStatus();
  }

 private:
  bool done_ = false;
};

class LossMetricHook : public logs::Hook {
 public:
  LossMetricHook(logs::BaseBenchmarkLogger* logger, int64_t every_n_steps)
      : logger_(logger), every_n_steps_(every_n_steps) {}

  absl::Status Begin(const logs::TrainStart& start) override {
    logged_step_ = start.global_step;
    return absl::OkStatus();
  }
  // Where workers count their steps together, a multiple may be a step of another one.
  logs::StepRequest BeforeStep(int64_t next_step, logs::TimePoint) override {
    is_due_ = next_step / every_n_steps_ > logged_step_ / every_n_steps_;
    return {.loss = is_due_};
  }
  absl::Status AfterStep(const logs::StepInfo& step) override {
    if (!is_due_) return absl::OkStatus();
    logged_step_ = step.global_step;
    // An evaluation logs a loss of this name too.
    return logger_->LogMetric(
        {.name = "loss", .value = *step.loss, .global_step = step.global_step, .extras = {{"mode", "train"}}});
  }

 private:
  logs::BaseBenchmarkLogger* const logger_;
  const int64_t every_n_steps_;
  int64_t logged_step_ = 0;  // the last one, or that before the first step
  bool is_due_ = false;      // after the next step
};

class PlanHook : public logs::Hook {
 public:
  explicit PlanHook(std::string own_kernels) : own_kernels_(std::move(own_kernels)) {}

  logs::StepRequest BeforeStep(int64_t, logs::TimePoint) override { return {.trace = !written_}; }
  absl::Status AfterStep(const logs::StepInfo& step) override {
    if (written_ || step.trace.empty()) return absl::OkStatus();
    ++seen_;
    Step now = Summary(step.trace[0]);
    // The first steps meet cold caches and memory that was never used.
    if (seen_ <= kSkipped + 1 || now.us < fastest_.us) fastest_ = std::move(now);
    if (seen_ == kSkipped + kSteps) Write();
    return absl::OkStatus();
  }
  absl::Status End(const logs::StepInfo&) override {
    if (!written_ && seen_ > 0) Write();
    return absl::OkStatus();
  }

 private:
  static constexpr int kSkipped = 2, kSteps = 3;
  struct Step {
    std::string device;
    std::vector<logs::OpRow> rows{};
    int64_t us = 0;
  };

  Step Summary(const logs::DeviceTrace& trace) const {
    logs::OpTable table(own_kernels_);
    table.Add(trace);
    return {.device = trace.device, .rows = table.Rows(), .us = table.us()};
  }

  void Write() {
    written_ = true;
    size_t op = 2, result = 6;
    for (const logs::OpRow& row : fastest_.rows) {
      op = std::max(op, row.op.size());
      result = std::max(result, row.result.size());
    }
    const double all_ms = 1e-3 * static_cast<double>(fastest_.us);
    std::string text =
        absl::StrFormat("plan of a step on %s, which takes %.4g ms if each op is timed\n", fastest_.device, all_ms);
    absl::StrAppendFormat(&text, "%6s %5s %9s  %-*s  %-*s  %s", "share", "ops", "ms", op, "op", result, "result",
                          "algorithm");
    logs::Json::Array ops;
    for (const logs::OpRow& row : fastest_.rows) {
      const double ms = 1e-3 * static_cast<double>(row.us), share = ms / std::max(all_ms, 1e-9);
      absl::StrAppendFormat(&text, "\n%5.1f%% %5d %9.3f  %-*s  %-*s  %s", 100 * share, row.count, ms, op, row.op,
                            result, row.result, row.algorithm);
      ops.push_back(logs::Json::Object{{"op", row.op},
                                       {"result", row.result},
                                       {"algorithm", row.algorithm},
                                       {"count", row.count},
                                       {"ms", ms},
                                       {"share", share}});
    }
    logs::LogEvent("plan", text, {{"device", fastest_.device}, {"ms", all_ms}, {"ops", std::move(ops)}});
    fastest_ = {};
  }

  const std::string own_kernels_;
  bool written_ = false;
  int seen_ = 0;
  Step fastest_;  // of those that count
};

}  // namespace

std::unique_ptr<logs::Hook> MakePlanHook(std::string own_kernels) {
  return std::make_unique<PlanHook>(std::move(own_kernels));
}

std::unique_ptr<logs::Hook> MakeFirstStepHook() { return std::make_unique<FirstStepHook>(); }

std::unique_ptr<logs::Hook> MakeLossMetricHook(logs::BaseBenchmarkLogger* logger, int64_t every_n_steps) {
  return std::make_unique<LossMetricHook>(logger, every_n_steps);
}

}  // namespace official::train
