// When a periodic hook acts: every so many steps or seconds. The rule that all hooks share.
#pragma once

#include <optional>

#include "utils/logs/hook.h"

namespace official::logs {

// Exactly one is set for a period; which hooks take neither, their Create says.
struct Period {
  std::optional<int64_t> steps{};
  std::optional<Seconds> seconds{};
};

// Triggers if it never did; never twice for one step; else when the period has passed since it last did.
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

  // Says that it triggered. What passed since it last did; nothing the first time.
  std::optional<Elapsed> Update(int64_t step, TimePoint now) {
    const std::optional<Trigger> before = last_;
    last_ = Trigger{step, now};
    if (!before) return std::nullopt;
    return Elapsed{step - before->step, now - before->time};
  }

  void Reset() { last_.reset(); }

  // Leaves time out of what counts as passed.
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
