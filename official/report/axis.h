// The scale of an axis, with ticks at round numbers.
#pragma once

#include <string>
#include <vector>

namespace official::report {

struct Axis {
  double min = 0, max = 1;  // both are ticks
  std::vector<double> ticks{};

  // Where a value lies between min (0) and max (1).
  double Position(double value) const { return (value - min) / (max - min); }
};

// Returns an axis that holds all values from `lowest` to `highest`, both finite and within 1e300, with at least 2 and
// at most max_ticks + 2 ticks, which are multiples of 1, 2 or 5 times a power of ten. With `whole`, ticks are whole
// numbers.
Axis NiceAxis(double lowest, double highest, int max_ticks, bool whole = false);

// Returns a short text for a tick of `axis`: "0.25", "20k", "1.5M", "2e-05".
std::string TickText(const Axis& axis, double tick);

// Returns a value for tables: four significant digits, "nan" if it is not finite.
std::string ValueText(double value);

}  // namespace official::report
