#include "utils/train/train_hooks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/logs/events.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
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

  logs::StepRequest BeforeStep(int64_t next_step, logs::TimePoint) override {
    return {.loss = next_step % every_n_steps_ == 0};
  }
  absl::Status AfterStep(const logs::StepInfo& step) override {
    if (step.global_step % every_n_steps_ != 0) return absl::OkStatus();
    return logger_->LogMetric({.name = "loss", .value = *step.loss, .global_step = step.global_step});
  }

 private:
  logs::BaseBenchmarkLogger* const logger_;
  const int64_t every_n_steps_;
};

class PlanHook : public logs::Hook {
 public:
  logs::StepRequest BeforeStep(int64_t, logs::TimePoint) override { return {.trace = !written_}; }
  absl::Status AfterStep(const logs::StepInfo& step) override {
    if (written_ || step.trace.empty()) return absl::OkStatus();
    // The first steps meet cold caches and memory that was never used.
    if (++seen_ <= kSkipped + 1) Forget();
    Add(step.trace[0]);
    if (seen_ == kSkipped + kSteps) Write();
    return absl::OkStatus();
  }
  absl::Status End(const logs::StepInfo&) override {
    if (!written_ && steps_ > 0) Write();
    return absl::OkStatus();
  }

 private:
  static constexpr int kSkipped = 2, kSteps = 3;
  struct Row {
    std::string op, result, algorithm;
    int64_t count = 0, us = 0;
  };

  void Forget() {
    rows_.clear();
    steps_ = 0;
  }
  void Add(const logs::DeviceTrace& trace) {
    ++steps_;
    device_ = trace.device;
    for (const logs::TraceEvent& event : trace.events) {
      Row& row = rows_[{event.op, event.result, event.algorithm}];
      row = {event.op, event.result, event.algorithm, row.count + 1, row.us + event.duration_us};
    }
  }
  void Write() {
    written_ = true;
    std::vector<Row> rows;
    int64_t all = 0;
    size_t op = 2, result = 6;
    for (const auto& [key, row] : rows_) {
      rows.push_back(row);
      all += row.us;
      op = std::max(op, row.op.size());
      result = std::max(result, row.result.size());
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.us > b.us; });
    const double all_ms = 1e-3 * static_cast<double>(all) / steps_;
    std::string text =
        absl::StrFormat("plan of a step on %s, which takes %.4g ms if each op is timed\n", device_, all_ms);
    absl::StrAppendFormat(&text, "%6s %5s %9s  %-*s  %-*s  %s", "share", "ops", "ms", op, "op", result, "result",
                          "algorithm");
    logs::Json::Array ops;
    for (const Row& row : rows) {
      const double ms = 1e-3 * static_cast<double>(row.us) / steps_, share = ms / std::max(all_ms, 1e-9);
      const std::string algorithm = row.algorithm.empty() ? "own" : row.algorithm;
      absl::StrAppendFormat(&text, "\n%5.1f%% %5d %9.3f  %-*s  %-*s  %s", 100 * share, row.count / steps_, ms, op,
                            row.op, result, row.result, algorithm);
      ops.push_back(logs::Json::Object{{"op", row.op},
                                       {"result", row.result},
                                       {"algorithm", algorithm},
                                       {"count", row.count / steps_},
                                       {"ms", ms},
                                       {"share", share}});
    }
    logs::LogEvent("plan", text, {{"device", device_}, {"ms", all_ms}, {"ops", std::move(ops)}});
    rows_.clear();
  }

  bool written_ = false;
  int seen_ = 0, steps_ = 0;
  std::string device_;
  std::map<std::array<std::string, 3>, Row> rows_;
};

}  // namespace

std::unique_ptr<logs::Hook> MakePlanHook() { return std::make_unique<PlanHook>(); }

std::unique_ptr<logs::Hook> MakeFirstStepHook() { return std::make_unique<FirstStepHook>(); }

std::unique_ptr<logs::Hook> MakeLossMetricHook(logs::BaseBenchmarkLogger* logger, int64_t every_n_steps) {
  return std::make_unique<LossMetricHook>(logger, every_n_steps);
}

}  // namespace official::train
