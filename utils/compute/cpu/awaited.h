#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <type_traits>

namespace official::compute {

// An integer of 32 bits that threads wait for, as for an std::atomic, but who waits sleeps at once: wait() of GCC's
// library first offers the core to others four times, so that beside other work a thread waits for its turns only to
// fall asleep.
template <typename T>
class Awaited {
 public:
  T load() const { return value_.load(std::memory_order_acquire); }
  // While nobody waits.
  void Reset(T value) { value_.store(value, std::memory_order_relaxed); }
  // Adds and returns the sum. It wakes nobody.
  T Add(T summand) { return value_.fetch_add(summand) + summand; }

  // Sleeps until somebody wakes those who wait, or for no reason; does not if the value is not `old` any more.
  void SleepWhile(T old) const {
    sleepers_.fetch_add(1);
    syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
    sleepers_.fetch_sub(1);
  }
  // To be called after a change of the value.
  void WakeOne() const { Wake(1); }
  void WakeAll() const { Wake(INT_MAX); }

 private:
  static_assert(std::is_integral_v<T> && sizeof(std::atomic<T>) == 4, "the size of a futex");

  // Who goes to sleep counts first and looks at the value then; who wakes looks in the other order, and all these are
  // sequentially consistent: one of the two sees the other.
  void Wake(int most) const {
    if (sleepers_.load() > 0) syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, most, nullptr, nullptr, 0);
  }

  std::atomic<T> value_ = 0;
  mutable std::atomic<int> sleepers_ = 0;
};

}  // namespace official::compute
