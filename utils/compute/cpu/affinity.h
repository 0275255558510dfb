// Affinity: the processors that a thread may run on.
#pragma once

#include <sched.h>
#include <sys/types.h>

namespace official::compute {

// Tells the kernel where a thread of this process may run, within what it could run on before, also if somebody else
// changes that meanwhile. Nothing happens where it has one processor only, or the kernel refuses.
class Affinity {
 public:
  explicit Affinity(pid_t thread) : thread_(thread) { CPU_ZERO(&set_); }

  // Lets it run everywhere but on this processor.
  void KeepOff(int processor);
  // Lets it run on this processor only. It moves there at once, also if it waits for another one.
  void MoveTo(int processor);
  // Lets it run everywhere.
  void Free();

 private:
  // Sets the processors to those that `choose` leaves of all.
  template <typename F>
  void Set(const F& choose);

  pid_t thread_;
  cpu_set_t all_;  // without us
  cpu_set_t set_;  // by us; none before the first time
};

}  // namespace official::compute
