#include "utils/run/learning_rate_range.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace official::run {
namespace {

constexpr double kKept = 0.98;  // of the mean, at each step
// The losses on either side of a rate that its slope is taken from: fewer of a small batch show noise alone.
constexpr size_t kHalfWindow = 15;
// A line that falls by less than this many standard deviations of the losses around it may be noise.
constexpr double kLeastFall = 2;

// The line that fits the losses [middle - kHalfWindow, middle + kHalfWindow] with the least squared errors.
struct Line {
  double slope = 0;    // a step
  double scatter = 0;  // the standard deviation of the losses around the line
};

Line FitLine(const std::vector<TestedLoss>& losses, size_t middle) {
  constexpr size_t kCount = 2 * kHalfWindow + 1;
  const TestedLoss* const first = &losses[middle - kHalfWindow];
  const auto x = [](size_t k) { return static_cast<double>(k) - static_cast<double>(kHalfWindow); };
  double mean = 0, x_y = 0, x_x = 0, squares = 0;
  for (size_t k = 0; k < kCount; ++k) {
    mean += first[k].loss / kCount;
    x_y += x(k) * first[k].loss;
    x_x += x(k) * x(k);
  }
  const double slope = x_y / x_x;
  for (size_t k = 0; k < kCount; ++k) squares += std::pow(first[k].loss - mean - slope * x(k), 2);
  return {slope, std::sqrt(squares / (kCount - 2))};
}

}  // namespace

double TestedRate(int i) {
  return kFirstTestedRate * std::pow(kLastTestedRate / kFirstTestedRate, static_cast<double>(i) / (kTestedRates - 1));
}

bool AddLoss(std::vector<TestedLoss>& losses, double loss) {
  const auto n = static_cast<int>(losses.size());
  // The mean begins with 0: its weights add up to 1 only after the division.
  const double before = n == 0 ? 0 : losses.back().smoothed * (1 - std::pow(kKept, n));
  const double smoothed = (kKept * before + (1 - kKept) * loss) / (1 - std::pow(kKept, n + 1));
  losses.push_back({TestedRate(n), loss, smoothed});
  const auto least = std::min_element(losses.begin(), losses.end(),
                                      [](const TestedLoss& a, const TestedLoss& b) { return a.smoothed < b.smoothed; });
  return least->smoothed <= 0 || smoothed <= 4 * least->smoothed;
}

std::optional<size_t> SteepestDescent(const std::vector<TestedLoss>& losses) {
  std::optional<size_t> steepest;
  double least_slope = 0;
  // The rates are at equal distances in their logarithm.
  for (size_t i = kHalfWindow; i + kHalfWindow < losses.size(); ++i) {
    const Line line = FitLine(losses, i);
    const double fall = -2.0 * kHalfWindow * line.slope;
    if (line.slope >= least_slope || fall <= kLeastFall * line.scatter) continue;
    least_slope = line.slope;
    steepest = i;
  }
  return steepest;
}

std::string LossTable(const std::vector<TestedLoss>& losses, std::optional<size_t> chosen) {
  std::string text = absl::StrFormat("%14s %12s %14s\n", "learning rate", "loss", "smoothed loss");
  const size_t every = std::max<size_t>(1, losses.size() / 20);
  for (size_t i = 0; i < losses.size(); ++i) {
    if (i % every != 0 && i + 1 != losses.size() && i != chosen) continue;
    absl::StrAppend(&text, absl::StrFormat("%14.3g %12.5g %14.5g%s\n", losses[i].learning_rate, losses[i].loss,
                                           losses[i].smoothed, i == chosen ? "  <- steepest descent" : ""));
  }
  return text;
}

}  // namespace official::run
