// Contention: other work that wants the core of a thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace official::compute {

// A thread has one of its own, and asks it alone.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  // Belongs to the calling thread.
  Contention();

  // Returns true if the calling thread has lately waited for a core though it had work. It looks at most once in 20 ms
  // at how long the thread has waited (/proc/thread-self/schedstat; where the kernel does not tell, at how often it was
  // preempted), and believes for a while what it has seen: the longer, the more often that was right.
  bool Now(Clock::time_point now);

  // Returns the share of the time that the thread waited for a core in the last tenths of a second before Now() looked.
  // Beside one endless loop, and one more thread of this program, on two cores it is a third if all three take turns;
  // beside two such loops it is half. 0 where the kernel does not tell.
  double Waiting() const { return waiting_; }
  // Forgets what Waiting() knows.
  void Forget() { waiting_ = 0; }

 private:
  // True if the thread waited too long since the last look.
  bool Look(Clock::duration since);

  Clock::time_point last_look_, until_;
  Clock::duration stay_;
  double waiting_ = 0;
  int64_t waited_ns_ = 0, times_preempted_ = 0;
};

}  // namespace official::compute
