// The timer of periodic hooks, which act every so many steps or seconds.
#pragma once

#include <optional>

#include "utils/logs/hook.h"

namespace official::logs {

// A period in steps or seconds: exactly one is set, or neither for the hooks whose Create allows it.
struct Period {
  std::optional<int64_t> steps{};
  std::optional<Seconds> seconds{};
};

// Triggers the first time, never twice for one step, and otherwise when the period has passed since it last did.
class SecondOrStepTimer {
 public:
  struct Elapsed {
    int64_t steps;
    Seconds time;
  };

  explicit SecondOrStepTimer(const Period& period) : period_(period) {}

  bool ShouldTrigger(int64_t step, TimePoint now) const {
    if (!last_) return true;
    if (step == last_->step) return false;
    if (period_.seconds && now - last_->time >= *period_.seconds) return true;
    return period_.steps && step >= last_->step + *period_.steps;
  }

  // Records that it triggered. Returns what passed since it last did; nothing the first time.
  std::optional<Elapsed> Update(int64_t step, TimePoint now) {
    const std::optional<Trigger> before = last_;
    last_ = Trigger{step, now};
    if (!before) return std::nullopt;
    return Elapsed{step - before->step, now - before->time};
  }

  void Reset() { last_.reset(); }

  // Leaves `time` out of the time that has passed.
  void SkipTime(TimePoint::duration time) {
    if (last_) last_->time += time;
  }

 private:
  struct Trigger {
    int64_t step;
    TimePoint time;
  };
  const Period period_;
  std::optional<Trigger> last_;
};

}  // namespace official::logs
