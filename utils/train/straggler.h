// Finds the worker that the others wait for.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace official::train {

struct Straggler {
  int worker;
  double seconds;         // that it has computed, a step and replica
  double others_seconds;  // the median of the others
};

class StragglerWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes, after each step, how long each worker has computed since the last one for each of its replicas, its waits
  // for others left out. Returns a worker that has needed much longer than the others for ten seconds; if it goes on,
  // again after twice as long each time.
  std::optional<Straggler> Add(absl::Span<const float> seconds, Clock::time_point now);

 private:
  std::optional<Straggler> Find(double window) const;

  std::vector<double> sums_;  // of the window
  int64_t steps_ = 0;
  std::optional<Clock::time_point> begin_;
  std::chrono::seconds length_ = kFirst;
  static constexpr std::chrono::seconds kFirst{10};
};

}  // namespace official::train
