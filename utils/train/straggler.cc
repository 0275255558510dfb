#include "utils/train/straggler.h"

#include <algorithm>

namespace official::train {
namespace {

// So much longer than the others a worker has to take, of its time and of the time of all.
constexpr double kMuchLonger = 1.5, kShareOfWindow = 0.1;

}  // namespace

std::optional<Straggler> StragglerWatch::Find(double window) const {
  const auto worst = std::max_element(sums_.begin(), sums_.end());
  std::vector<double> others = sums_;
  others.erase(others.begin() + (worst - sums_.begin()));
  if (others.empty()) return std::nullopt;
  const auto median = others.begin() + static_cast<int64_t>(others.size() / 2);
  std::nth_element(others.begin(), median, others.end());
  if (*worst < kMuchLonger * *median || *worst - *median < kShareOfWindow * window) return std::nullopt;
  const auto steps = static_cast<double>(steps_);
  return Straggler{static_cast<int>(worst - sums_.begin()), *worst / steps, *median / steps};
}

std::optional<Straggler> StragglerWatch::Add(absl::Span<const float> seconds, Clock::time_point now) {
  if (!begin_ || sums_.size() != seconds.size()) {
    // What came before this step is not known.
    begin_ = now;
    sums_.assign(seconds.size(), 0);
    steps_ = 0;
    return std::nullopt;
  }
  ++steps_;
  for (size_t w = 0; w < sums_.size(); ++w) sums_[w] += seconds[w];
  if (now - *begin_ < length_) return std::nullopt;
  const std::optional<Straggler> found = Find(std::chrono::duration<double>(now - *begin_).count());
  length_ = found ? length_ * 2 : kFirst;
  begin_ = now;
  std::fill(sums_.begin(), sums_.end(), 0);
  steps_ = 0;
  return found;
}

}  // namespace official::train
