#include "utils/logs/task_progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/logs/events.h"
#include "utils/logs/log.h"
#include "utils/logs/terminal.h"

namespace official::logs {
namespace {

constexpr std::chrono::seconds kFirstDraw(1);
std::atomic<bool> draws_at_once = false;

TaskProgressOptions Complete(TaskProgressOptions options) {
  options.title = WithoutControls(options.title);
  return options;
}

}  // namespace

std::string FormatDuration(double seconds) {
  // 2^63 - 1 steps may be left to go, of more than a second each.
  const auto whole = static_cast<int64_t>(std::min(0x1p62, seconds));
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

void DrawTasksAtOnce(bool at_once) { draws_at_once = at_once; }

TaskProgress::TaskProgress(TaskProgressOptions options)
    : options_(Complete(std::move(options))),
      start_(options_.now ? options_.now() : std::chrono::steady_clock::now()),
      done_(options_.done),
      last_line_(start_) {
  if (draws_at_once) Tick();
  if (!options_.now) ticker_ = std::make_unique<Ticker>([this] { Tick(); });
}

TaskProgress::~TaskProgress() {
  ticker_.reset();
  if (draws_at_once) Tick();
  if (!drawn_.empty()) ShowLiveLine("");
}

void TaskProgress::Tick() {
  const TimePoint now = options_.now ? options_.now() : std::chrono::steady_clock::now();
  if (CurrentLogFormat() == LogFormat::kBar) {
    if (draws_at_once || now - start_ >= kFirstDraw) DrawLine(StateAt(now));
    return;
  }
  // What other threads have logged counts too.
  const TimePoint last = options_.now ? last_line_ : std::max(last_line_, TimeOfLastLine());
  if (now - last < kLongestSilence) return;
  last_line_ = now;
  LogLine(StateAt(now));
}

TaskProgress::State TaskProgress::StateAt(TimePoint now) const {
  State state{.done = done_.load(std::memory_order_relaxed),
              .elapsed = std::chrono::duration<double>(now - start_).count()};
  const auto done_here = static_cast<double>(state.done - options_.done);
  if (state.elapsed > 0) state.per_second = std::max(0.0, done_here / state.elapsed);
  if (options_.total > 0 && state.per_second > 0) {
    state.left = std::max(0.0, static_cast<double>(options_.total - state.done) / state.per_second);
  }
  return state;
}

// "4500/10000 images", "12.5/918.3 MB", "12.5 MB".
std::string TaskProgress::Count(int64_t number) const {
  const auto form = [&](int64_t n) {
    return options_.unit == "B" ? absl::StrFormat("%.1f", static_cast<double>(n) / 1e6) : absl::StrCat(n);
  };
  return absl::StrCat(form(number), options_.total > 0 ? absl::StrCat("/", form(options_.total)) : "", " ",
                      options_.unit == "B" ? "MB" : options_.unit);
}

std::vector<LinePart> TaskProgress::Parts(const State& state) const {
  std::vector<LinePart> parts = {{options_.title}};
  if (options_.total > 0) {
    const double fraction = std::min(1.0, static_cast<double>(state.done) / static_cast<double>(options_.total));
    parts.push_back({.text = absl::StrFormat("%3d%%", static_cast<int>(100 * fraction)), .before = " "});
    parts.push_back({.text = "", .rank = 1, .before = " ", .bar = fraction});
  }
  if (!options_.unit.empty()) {
    parts.push_back({.text = Count(state.done), .rank = 3});
    const bool bytes = options_.unit == "B";
    parts.push_back({.text = absl::StrFormat("%.1f %s/s", bytes ? state.per_second / 1e6 : state.per_second,
                                             bytes ? "MB" : options_.unit),
                     .rank = 4});
  }
  parts.push_back({.text = FormatDuration(state.elapsed)});
  if (state.left) {
    parts.push_back({.text = absl::StrCat(FormatDuration(std::ceil(*state.left)), " left"), .rank = 2});
  }
  return parts;
}

void TaskProgress::DrawLine(const State& state) {
  std::string line = FitLine(Parts(state), LiveLineColumns());
  if (line == drawn_) return;
  drawn_ = std::move(line);
  ShowLiveLine(drawn_);
}

void TaskProgress::LogLine(const State& state) {
  std::vector<std::string> texts;
  for (const LinePart& part : Parts(state)) {
    if (!part.bar) texts.push_back(std::string(absl::StripLeadingAsciiWhitespace(part.text)));
  }
  const bool counts = !options_.unit.empty();
  const auto if_counted = [&](int64_t number) { return counts ? Json(number) : Json(); };
  LogEvent("progress", absl::StrJoin(texts, ", "),
           {{"task", options_.title},
            {"done", if_counted(state.done)},
            {"total", options_.total > 0 ? Json(options_.total) : Json()},
            {"unit", counts ? Json(options_.unit == "B" ? "bytes" : options_.unit) : Json()},
            {"per_sec", counts ? Json(state.per_second) : Json()},
            {"elapsed_sec", state.elapsed},
            {"eta_sec", state.left ? Json(*state.left) : Json()}});
}

}  // namespace official::logs
