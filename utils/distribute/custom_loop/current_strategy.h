// The strategy that code works under which was not given one, as tf.distribute.get_strategy() has it.
#pragma once

#include "utils/distribute/strategy.h"

namespace official::distribute {

// Returns the strategy whose scope runs the function that this thread builds, of a replica or of a merge_call; outside
// of such functions the default strategy: one replica on all cores of the CPU, for which Run calls a function and
// Reduce returns what it gets. It is made at its first use and is the same for all callers.
Strategy& GetStrategy();

// True within the function of a replica or of a merge_call: tf.distribute.has_strategy().
bool HasStrategy();

// Makes a strategy the one of this thread while it lives.
class UnderStrategy {
 public:
  explicit UnderStrategy(Strategy& strategy);
  ~UnderStrategy();
  UnderStrategy(const UnderStrategy&) = delete;
  UnderStrategy& operator=(const UnderStrategy&) = delete;

 private:
  Strategy* const before_;
};

}  // namespace official::distribute
