#include "utils/logs/progress.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/logs/log.h"

namespace official::logs {
namespace {

constexpr std::chrono::milliseconds kDrawInterval(100);

std::string OutOf(absl::string_view what, int64_t number, int64_t total) {
  return total > 0 ? absl::StrCat(what, " ", number, "/", total) : absl::StrCat(what, " ", number);
}

// 7 -> "0:07", 3661 -> "1:01:01"
std::string FormatDuration(double seconds) {
  const auto s = static_cast<int64_t>(std::ceil(seconds));
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

// JSON has no NaN and no infinity.
Json FiniteOrNull(std::optional<double> value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }

}  // namespace

Progress::~Progress() { ShowLiveLine(""); }

absl::Status Progress::Begin(const TrainStart& start) {
  last_time_ = start.time;
  next_draw_ = start.time;
  return absl::OkStatus();
}

StepRequest Progress::BeforeStep(int64_t next_step, TimePoint now) {
  if (options_.format == LogFormat::kBar) {
    // Whether it is time to draw is known only after the step, but the loss must be asked for now.
    show_next_ = now + step_time_ >= next_draw_ || next_step == options_.total_steps;
  } else if (options_.format != LogFormat::kNone) {
    show_next_ = next_step % options_.log_every_n_steps == 0 || next_step == options_.total_steps;
  }
  return {.loss = show_next_};
}

absl::Status Progress::AfterStep(const StepInfo& step) {
  step_time_ = step.time - last_time_;
  last_time_ = step.time;
  if (++steps_ > options_.warmup_steps) {
    measured_examples_ += step.examples;
    measured_time_ += step_time_;
    measured_wait_ += step.data_wait;
  }
  if (!show_next_) return absl::OkStatus();
  if (options_.format == LogFormat::kBar) {
    ShowLiveLine(Line(step, /*with_warmup=*/false));
    next_draw_ = step.time + kDrawInterval;
  } else {
    LogLine(step);
  }
  return absl::OkStatus();
}

absl::Status Progress::End(const StepInfo& last) {
  ShowLiveLine("");
  if (steps_ > 0 && last.global_step != logged_step_) LogLine(last);
  return absl::OkStatus();
}

std::optional<double> Progress::ExamplesPerSecond() const {
  if (measured_time_.count() <= 0) return std::nullopt;
  return measured_examples_ / measured_time_.count();
}

std::string Progress::Summary() const {
  const std::string warmup = absl::StrCat(options_.warmup_steps, " warm-up steps");
  const std::optional<double> rate = ExamplesPerSecond();
  if (rate) return absl::StrFormat("%.1f examples/s (after %s)", *rate, warmup);
  return absl::StrCat("no throughput: ", steps_, " steps are not more than the ", warmup);
}

std::string Progress::Line(const StepInfo& step, bool with_warmup) const {
  std::string line = absl::StrCat(OutOf("epoch", step.epoch, options_.total_epochs), ", ",
                                  OutOf("step", step.global_step, options_.total_steps));
  if (step.loss) absl::StrAppendFormat(&line, ", loss %.4g", *step.loss);
  const std::optional<double> rate = ExamplesPerSecond();
  if (!rate) return absl::StrCat(line, ", warm-up");
  absl::StrAppend(&line, ", ", with_warmup ? Summary() : absl::StrFormat("%.1f examples/s", *rate));
  if (const auto eta = EtaSeconds(step)) absl::StrAppend(&line, ", ETA ", FormatDuration(*eta));
  absl::StrAppendFormat(&line, ", data-wait %.1f%%", 100 * measured_wait_.count() / measured_time_.count());
  return line;
}

Json::Object Progress::Fields(const StepInfo& step) const {
  const auto total = [](int64_t value) { return value > 0 ? Json(value) : Json(); };
  const std::optional<double> rate = ExamplesPerSecond();
  const double wait = rate ? measured_wait_.count() / measured_time_.count() : NAN;
  return {{"epoch", step.epoch},
          {"total_epochs", total(options_.total_epochs)},
          {"global_step", step.global_step},
          {"total_steps", total(options_.total_steps)},
          {"loss", FiniteOrNull(step.loss)},
          {"examples_per_sec", FiniteOrNull(rate)},
          {"warmup_steps", options_.warmup_steps},
          {"eta_sec", FiniteOrNull(EtaSeconds(step))},
          {"data_wait_fraction", FiniteOrNull(wait)}};
}

std::optional<double> Progress::EtaSeconds(const StepInfo& step) const {
  const int64_t measured_steps = steps_ - options_.warmup_steps;
  if (options_.total_steps <= 0 || measured_steps <= 0) return std::nullopt;
  return (options_.total_steps - step.global_step) * measured_time_.count() / measured_steps;
}

void Progress::LogLine(const StepInfo& step) {
  logged_step_ = step.global_step;
  WriteLog(Severity::INFO, Line(step, /*with_warmup=*/true), Fields(step));
}

}  // namespace official::logs
