#include "utils/logs/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/logs/events.h"
#include "utils/logs/hooks.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::logs {
namespace {

constexpr std::chrono::milliseconds kDrawInterval(100);
// A step that takes longer shows how long.
constexpr Seconds kLongStep(1.0);
// The step that begins so long after the last line has one: later it might end in time, or not.
constexpr std::chrono::seconds kLongPause = kLongestSilence - std::chrono::seconds(5);

std::string OutOf(absl::string_view what, int64_t number, int64_t total) {
  return total > 0 ? absl::StrCat(what, " ", number, "/", total) : absl::StrCat(what, " ", number);
}

std::string Eta(double seconds) { return absl::StrCat("ETA ", FormatDuration(std::ceil(std::max(0.0, seconds)))); }

std::string FloatText(double value) { return FormatFloat(static_cast<float>(value)); }

Json ValueOrNull(std::optional<double> value) { return value ? Json(*value) : Json(); }

}  // namespace

Progress::~Progress() {
  ticker_.reset();
  ShowLiveLine("");
}

absl::Status Progress::Begin(const TrainStart& start) {
  RETURN_IF_ERROR(CheckTensors("LoggingTensorHook", options_.tensors, start.tensor_names));
  {
    const std::lock_guard lock(mutex_);
    last_time_ = next_draw_ = last_line_ = start.time;
    last_loss_.reset();
    last_ = {.global_step = start.global_step};
    regular_step_ = start.global_step;
  }
  if (!options_.now) ticker_ = std::make_unique<Ticker>([this] { Tick(); });
  return absl::OkStatus();
}

StepRequest Progress::BeforeStep(int64_t next_step, TimePoint now) {
  if (options_.format == LogFormat::kNone) return {};
  const std::lock_guard lock(mutex_);
  const bool bar = options_.format == LogFormat::kBar, is_last = next_step == options_.total_steps;
  // Whether it is time to draw is known only after the step, but the loss must be asked for now.
  draws_next_ = bar && (now + step_time_ >= next_draw_ || is_last);
  // Where workers count their steps together, a multiple may be a step of another one.
  const int64_t every = options_.log_every_n_steps;
  const bool has_lines = !bar || !options_.tensors.empty();
  logs_next_ = has_lines && !is_last &&
               (steps_ == 0 || next_step / every > regular_step_ / every || (!bar && now - LastLine() >= kLongPause));
  // End() logs the last step.
  return {.loss = draws_next_ || logs_next_ || is_last,
          .tensors = (logs_next_ || is_last) && !options_.tensors.empty()};
}

absl::Status Progress::AfterStep(const StepInfo& step) {
  const std::lock_guard lock(mutex_);
  step_time_ = step.time - last_time_;
  last_time_ = step.time;
  if (++steps_ > options_.warmup_steps) {
    measured_examples_ += step.examples;
    measured_time_ += step_time_;
    // The first step of a round may have begun to wait before the round did.
    measured_wait_ += std::min<Seconds>(step.data_wait, step_time_);
  }
  const std::optional<double> shown_loss = last_.loss;
  last_ = ToShow(step);
  if (logs_next_) regular_step_ = step.global_step;
  if (logs_next_) {
    const std::string elapsed =
        last_loss_ ? absl::StrFormat(" (%.3f sec)", Seconds(step.time - *last_loss_).count()) : "";
    last_loss_ = step.time;
    LogLine(last_, absl::StrCat("loss = ", FloatText(*last_.loss), ", step = ", last_.global_step, elapsed, ", ",
                                Details(last_)));
  }
  if (!last_.loss) last_.loss = shown_loss;
  if (draws_next_) {
    ShowLiveLine(FitLine(LiveParts(step.time), LiveLineColumns()));
    next_draw_ = step.time + kDrawInterval;
  }
  return absl::OkStatus();
}

absl::Status Progress::End(const StepInfo& last) {
  ticker_.reset();
  ShowLiveLine("");
  const std::lock_guard lock(mutex_);
  if (last.examples == 0) return absl::OkStatus();  // no step
  const std::string loss = last.loss ? absl::StrCat("Loss for final step: ", FloatText(*last.loss), ".") : "";
  if (last.global_step != logged_step_) {
    const Shown step = ToShow(last);
    LogLine(step, absl::StrCat(loss, loss.empty() ? "" : " ", "step = ", step.global_step, ", ", Details(step)));
  } else if (last.loss) {
    LOG(INFO) << loss;
  }
  return absl::OkStatus();
}

void Progress::Tick() {
  const TimePoint now = options_.now ? options_.now() : std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  const Seconds in_step = now - last_time_;
  if (options_.format == LogFormat::kBar) {
    if (in_step >= kLongStep) ShowLiveLine(FitLine(LiveParts(now), LiveLineColumns()));
    return;
  }
  if (now - LastLine() < kLongestSilence) return;
  last_line_ = now;
  LogEvent("progress", absl::StrFormat("step %d has taken %.0f s so far", last_.global_step + 1, in_step.count()),
           {{"task", absl::StrCat("training step ", last_.global_step + 1)},
            {"done", nullptr},
            {"total", nullptr},
            {"unit", nullptr},
            {"per_sec", nullptr},
            {"elapsed_sec", in_step.count()},
            {"eta_sec", nullptr}});
}

TimePoint Progress::LastLine() const { return options_.now ? last_line_ : std::max(last_line_, TimeOfLastLine()); }

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

Json::Object Progress::SummaryFields() const {
  return {{"steps", steps_},
          {"warmup_steps", options_.warmup_steps},
          {"examples_per_sec", ValueOrNull(ExamplesPerSecond())}};
}

Progress::Shown Progress::ToShow(const StepInfo& step) const {
  Shown shown{.global_step = step.global_step, .epoch = step.epoch, .loss = step.loss};
  for (const std::string& name : options_.tensors) {
    for (const auto& tensor : step.tensors) {
      if (tensor.first == name) shown.tensors.push_back(tensor);
    }
  }
  return shown;
}

std::string Progress::Details(const Shown& step) const {
  std::string details;
  for (const auto& [name, value] : step.tensors) {
    // Where the loss is nothing but the cross entropy, once is enough.
    if (step.loss != value) absl::StrAppend(&details, name, " = ", FloatText(value), ", ");
  }
  if (const int64_t total = options_.total_steps; total > 0) {
    absl::StrAppend(&details, 100 * step.global_step / total, "% of ", total, " steps, ");
  }
  absl::StrAppend(&details, OutOf("epoch", step.epoch, options_.total_epochs));
  const std::optional<double> rate = ExamplesPerSecond();
  if (!rate) return absl::StrCat(details, ", warm-up");
  absl::StrAppendFormat(&details, ", %.1f examples/s", *rate);
  if (const auto eta = EtaSeconds(step.global_step)) absl::StrAppend(&details, ", ", Eta(*eta));
  absl::StrAppendFormat(&details, ", data-wait %.1f%%", 100 * measured_wait_.count() / measured_time_.count());
  return details;
}

Json::Object Progress::Fields(const Shown& step) const {
  const auto total = [](int64_t value) { return value > 0 ? Json(value) : Json(); };
  const std::optional<double> rate = ExamplesPerSecond();
  const double wait = rate ? measured_wait_.count() / measured_time_.count() : NAN;
  Json::Object tensors;
  for (const auto& [name, value] : step.tensors) tensors.emplace_back(name, value);
  return {{"epoch", step.epoch},
          {"total_epochs", total(options_.total_epochs)},
          {"global_step", step.global_step},
          {"total_steps", total(options_.total_steps)},
          {"loss", ValueOrNull(step.loss)},
          {"tensors", std::move(tensors)},
          {"examples_per_sec", ValueOrNull(rate)},
          {"warmup_steps", options_.warmup_steps},
          {"eta_sec", ValueOrNull(EtaSeconds(step.global_step))},
          {"data_wait_fraction", ValueOrNull(wait)}};
}

// The live line, of which a narrow terminal shows what has a low rank.
std::vector<LinePart> Progress::LiveParts(TimePoint now) const {
  std::vector<LinePart> parts = {{OutOf("step", last_.global_step, options_.total_steps)}};
  if (options_.total_steps > 0) {
    const double fraction = static_cast<double>(last_.global_step) / static_cast<double>(options_.total_steps);
    parts.push_back({.text = absl::StrFormat("%3d%%", static_cast<int>(100 * fraction)), .rank = 3, .before = " "});
    parts.push_back({.text = "", .rank = 4, .before = " ", .bar = fraction});
  }
  if (last_.loss) parts.push_back({.text = absl::StrFormat("loss %.4g", *last_.loss), .rank = 1});
  const std::optional<double> rate = ExamplesPerSecond();
  if (rate) parts.push_back({.text = absl::StrFormat("%.1f examples/s", *rate), .rank = 5});
  const Seconds in_step = now - last_time_;
  if (const auto eta = EtaSeconds(last_.global_step)) {
    parts.push_back({.text = Eta(*eta - in_step.count()), .rank = 2});
  }
  if (in_step >= kLongStep) {
    parts.push_back({.text = absl::StrCat(FormatDuration(in_step.count()), " in step ", last_.global_step + 1)});
  }
  if (last_.epoch > 0) parts.push_back({.text = OutOf("epoch", last_.epoch, options_.total_epochs), .rank = 6});
  if (!rate) {
    parts.push_back({.text = "warm-up", .rank = 7});
  } else {
    parts.push_back({.text = absl::StrFormat("data-wait %.1f%%", 100 * measured_wait_.count() / measured_time_.count()),
                     .rank = 7});
  }
  return parts;
}

std::optional<double> Progress::EtaSeconds(int64_t global_step) const {
  const int64_t measured_steps = steps_ - options_.warmup_steps;
  if (options_.total_steps <= 0 || measured_steps <= 0) return std::nullopt;
  return (options_.total_steps - global_step) * measured_time_.count() / measured_steps;
}

void Progress::LogLine(const Shown& step, const std::string& text) {
  logged_step_ = step.global_step;
  last_line_ = last_time_;
  LogEvent("step", text, Fields(step));
}

}  // namespace official::logs
