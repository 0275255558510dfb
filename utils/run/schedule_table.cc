#include "utils/run/schedule_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace official::run {
namespace {

constexpr size_t kMostPoints = 20;
// In longer runs changes are not looked for.
constexpr int64_t kMostSearchedSteps = 10'000'000;

// The step that is `i` / `n` of the way from the first to the last of `total_steps`; no product of it overflows.
int64_t StepAt(int64_t total_steps, int64_t i, int64_t n) {
  const int64_t last = total_steps - 1;
  return last / n * i + last % n * i / n;
}

// The first step after `step`, and before `end`, with another rate; `end` if all are the same. Steps are looked at one
// by one, since a rate may come back.
int64_t NextChange(const train::LearningRateFn& learning_rate, int64_t step, int64_t end) {
  const double rate = learning_rate(step);
  do {
    ++step;
  } while (step < end && learning_rate(step) == rate);
  return step;
}

// One character for a value from 0 to 8 eighths.
const char* Block(int eighths) {
  constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  return kBlocks[std::clamp(eighths, 0, 8)];
}

std::string Plot(const train::LearningRateFn& learning_rate, int64_t total_steps) {
  constexpr int kHeight = 6, kWidth = 60, kLabel = 10;
  const int width = static_cast<int>(std::min<int64_t>(kWidth, total_steps));
  std::vector<double> rates(width);
  for (int i = 0; i < width; ++i) {
    rates[i] = learning_rate(width == 1 ? 0 : StepAt(total_steps, i, width - 1));
  }
  const double most = *std::max_element(rates.begin(), rates.end());
  std::string text;
  for (int row = kHeight - 1; row >= 0; --row) {
    const std::string label = row == kHeight - 1 ? absl::StrFormat("%.4g", most) : row == 0 ? "0" : "";
    absl::StrAppend(&text, absl::StrFormat("%*s ", kLabel, label));
    for (const double rate : rates) {
      // A rate above 0 shows.
      const int eighths = most > 0 ? static_cast<int>(rate / most * kHeight * 8 + 0.5) : 0;
      absl::StrAppend(&text, Block(row == 0 && rate > 0 ? std::max(1, eighths) : eighths - row * 8));
    }
    absl::StrAppend(&text, "\n");
  }
  const std::string last = absl::StrCat(total_steps - 1);
  absl::StrAppend(&text, absl::StrFormat("%*s step 0", kLabel, ""));
  const int gap = width - 6 - static_cast<int>(last.size());
  if (gap > 0) absl::StrAppend(&text, std::string(gap, ' '), last);
  return text + "\n";
}

}  // namespace

std::vector<SchedulePoint> SchedulePoints(const train::LearningRateFn& learning_rate, int64_t total_steps) {
  std::vector<SchedulePoint> points;
  if (total_steps <= kMostSearchedSteps) {
    int64_t step = 0;
    while (step < total_steps && points.size() <= kMostPoints) {
      points.push_back({step, learning_rate(step)});
      step = NextChange(learning_rate, step, total_steps);
    }
    if (points.size() <= kMostPoints) {
      if (!points.empty() && points.back().step < total_steps - 1) {
        points.push_back({total_steps - 1, learning_rate(total_steps - 1)});
      }
      return points;
    }
    points.clear();
  }
  for (size_t i = 0; i < kMostPoints; ++i) {
    const int64_t step = StepAt(total_steps, static_cast<int64_t>(i), kMostPoints - 1);
    points.push_back({step, learning_rate(step)});
  }
  return points;
}

std::string ScheduleTable(const train::LearningRateFn& learning_rate, int64_t total_steps, double steps_per_epoch) {
  std::string text = absl::StrFormat("%12s %10s  %s\n", "step", "epoch", "learning rate");
  for (const SchedulePoint& point : SchedulePoints(learning_rate, total_steps)) {
    const std::string epoch =
        steps_per_epoch > 0 ? absl::StrFormat("%.2f", static_cast<double>(point.step) / steps_per_epoch) : "-";
    absl::StrAppend(&text, absl::StrFormat("%12d %10s  %.6g\n", point.step, epoch, point.learning_rate));
  }
  return absl::StrCat(text, "\n", Plot(learning_rate, total_steps));
}

}  // namespace official::run
