#include "utils/train/train_hooks.h"

#include <cmath>

#include "utils/compute/core/status.h"
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

}  // namespace

std::unique_ptr<logs::Hook> MakeFirstStepHook() { return std::make_unique<FirstStepHook>(); }

std::unique_ptr<logs::Hook> MakeLossMetricHook(logs::BaseBenchmarkLogger* logger, int64_t every_n_steps) {
  return std::make_unique<LossMetricHook>(logger, every_n_steps);
}

}  // namespace official::train
