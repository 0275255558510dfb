#include "utils/run/learning_rate_range.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace official::run {
namespace {

constexpr double kKept = 0.98;  // of the mean, at each step
constexpr size_t kSkippedFirst = 10, kSkippedLast = 1;

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
  for (size_t i = kSkippedFirst + 1; i + 1 + kSkippedLast < losses.size(); ++i) {
    const double slope = (losses[i + 1].smoothed - losses[i - 1].smoothed) / 2;
    if (slope >= least_slope) continue;
    least_slope = slope;
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
