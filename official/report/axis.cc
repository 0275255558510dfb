#include "official/report/axis.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace official::report {
namespace {

// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
double RoundUp(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string Fixed(double value, double step) {
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
  return absl::StrFormat("%.*f", decimals, value);
}

}  // namespace

Axis NiceAxis(double lowest, double highest, int max_ticks, bool whole) {
  // Values that differ by less than their rounding errors count as one.
  const double size = std::max(std::abs(lowest), std::abs(highest));
  if (!(highest - lowest > 1e-9 * size)) {
    const double around = size > 1e-300 ? size / 2 : 0.5;
    lowest -= around;
    highest += around;
    if (whole) lowest = std::max(0.0, lowest);
  }
  double step = RoundUp((highest - lowest) / max_ticks);
  if (whole) step = std::max(1.0, step);
  const double first = std::floor(lowest / step + 1e-9), last = std::max(first + 1, std::ceil(highest / step - 1e-9));
  Axis axis = {.min = first * step, .max = last * step};
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * step);
  return axis;
}

std::string TickText(const Axis& axis, double tick) {
  const double step = axis.ticks[1] - axis.ticks[0], largest = std::max(std::abs(axis.min), std::abs(axis.max));
  if (std::abs(tick) < step / 2) return "0";
  if (largest >= 1e10 || largest < 0.01) {
    const int digits = static_cast<int>(std::ceil(std::log10(largest / step) - 1e-9)) + 1;
    return absl::StrFormat("%.*g", std::clamp(digits, 1, 9), tick);
  }
  if (largest >= 1e7 || (largest >= 1e6 && step >= 1e5)) return Fixed(1e-6 * tick, 1e-6 * step) + "M";
  if (largest >= 1e4) return Fixed(1e-3 * tick, 1e-3 * step) + "k";
  return Fixed(tick, step);
}

std::string ValueText(double value) { return std::isfinite(value) ? absl::StrFormat("%.4g", value) : "nan"; }

}  // namespace official::report
