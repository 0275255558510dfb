#include "utils/train/train_hooks.h"

#include <time.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::train {
namespace {

double SecondsSinceBoot() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// When this file was initialized, some milliseconds after the process was started.
const double kProgramStart = SecondsSinceBoot();

// When the process was started, in seconds since boot. Nothing if the file does not tell.
std::optional<double> StartOf(const std::string& stat_file) {
  std::ifstream file(stat_file);
  const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Fields after the program's name, which is in parentheses and may hold anything; the 20th is the start in ticks
  // since boot (proc(5), starttime).
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 0; i < 19; ++i) fields >> field;
  double ticks;
  if (!(fields >> ticks)) return std::nullopt;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

class FirstStepHook : public logs::Hook {
 public:
  absl::Status AfterStep(const logs::StepInfo&) override {
    if (!done_) {
      LOG(INFO) << "first training step done " << std::lround(MillisecondsSinceProcessStart())
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

double MillisecondsSinceProcessStart(const std::string& stat_file) {
  return 1e3 * (SecondsSinceBoot() - StartOf(stat_file).value_or(kProgramStart));
}

}  // namespace official::train
