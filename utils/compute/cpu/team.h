// The threads that run the parallel loops (parallel.h) of one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "utils/compute/cpu/affinity.h"
#include "utils/compute/cpu/awaited.h"

namespace official::compute {

// The part of a loop that the calling thread is in. Outside of loops as it is initially.
struct Place {
  int part = 0, parts = 1;
  int thread = 0;          // of the team: 0 is the one whose loop it is
  bool in_region = false;  // of several parts, here or further out
  class Team* team = nullptr;
};
extern thread_local Place place;

// Threads that work on the loops of the thread that owns this, together with it. Each has a share of a loop's parts and
// works on them from first to last; whose share is done takes from the ends of the others', so that nobody waits for a
// thread that has no core just now. Those who wait look again and again for a while, and sleep then: the while is short
// where other work wants the cores. There, too, the owner keeps the others off its own core, on which they would only
// take turns with it, and lends it to one that was put off another core in the middle of a part for which it waits.
// Where every core has other work, spare threads join in loops that take long enough: of three loops and two threads of
// ours on two cores, our threads have two fifths of the time at most, and wait for each other besides; of eight threads
// some have a core at any time.
class Team {
 public:
  static constexpr int kMostThreads = 1024;
  using Clock = std::chrono::steady_clock;
  using RunFunction = void (*)(void* context, int part);

  Team();
  ~Team();

  // Runs run(context, part) for part in [0, parts) on `threads` threads, this one among them, and returns when all have
  // finished. Beside other work on all cores it may be up to `most_threads`. If `threads` is `parts` each part may wait
  // for others (Barrier). At most 2^20 parts. Throws std::system_error if the machine does not let that many threads
  // start.
  void Run(int parts, int threads, int most_threads, RunFunction run, void* context);

  // Called from all parts of a loop; returns when all have called it.
  void Barrier();

 private:
  // The parts that are left of a thread's share: `begin` and `end`, and the number of threads that may work now; all in
  // one number, so that nobody takes a part twice, or one of a loop that is over.
  struct alignas(64) Share {
    std::atomic<uint64_t> left = 0;
    // State of the thread whose share it is.
    std::atomic<bool> works = false;      // on a part
    std::atomic<bool> contended = false;  // other work wants its core
    std::atomic<bool> crowded = false;    // so much that it waits about half of the time
  };
  // A thread as its owner sees it.
  struct Helper {
    std::thread thread;
    std::atomic<pid_t> id = 0;         // the kernel's; 0: it has not begun
    std::optional<Affinity> affinity;  // once it has begun
    int kept_off = -1;                 // a processor
    bool borrows = false;              // the owner's core
  };

  // Starts threads until there are so many. `are_spares`: they wait for loops with more threads than there are regular
  // helpers.
  void StartHelpers(int count, bool are_spares);
  // As many of them as the machine lets start; returns the number of helpers.
  int TryToStartSpares(int count);
  // Learns whether other work wants the cores of the helpers, and keeps those off the calling thread's core.
  void LookAround();
  // Returns true if spare threads help now.
  bool WantsSpares(Clock::time_point now);
  void UseSpares(bool use);
  // Takes note of how long a loop took.
  void Remember(Clock::duration took);
  void KeepOff(Helper& helper, int processor);  // -1: from none
  // Waits for a change of done_, without a core if a helper can use it.
  void LendCore(int done);
  void WorkOn(int thread);
  // Takes a part of this share, its first or its last one; -1: there is none, or thread `taker` is one too many now.
  static int Take(Share& share, int taker, bool first);
  void Help(int thread, Awaited<uint32_t>& loops);

  const std::unique_ptr<Share[]> shares_;
  // Of the loop: who holds a part of it may read them. Who does not may find the next loop's.
  RunFunction run_ = nullptr;
  void* context_ = nullptr;
  int parts_ = 0;
  alignas(64) Awaited<uint32_t> loops_;  // that have begun
  Awaited<uint32_t> loops_with_spares_;
  alignas(64) Awaited<int> done_;  // parts of the loop that are done
  alignas(64) std::atomic<int> at_barrier_ = 0;
  Awaited<uint32_t> barriers_;  // that all have passed
  std::atomic<bool> ending_ = false;
  std::atomic<uint32_t> contention_changes_ = 0;  // of helpers
  // No helper is kept off a core then, and who waits sleeps at once. The owner changes it between loops.
  std::atomic<bool> uses_spares_ = false;
  // Only the owner uses these.
  std::vector<std::unique_ptr<Helper>> helpers_;
  int num_regular_ = 0;  // helpers; the others are spares
  uint32_t seen_changes_ = 0;
  bool is_contended_ = false;  // the core of a helper
  bool is_crowded_ = false;    // those of half of the helpers
  int processor_ = -1;
  Clock::time_point spares_until_;
  Clock::duration spares_stay_{};
  Clock::duration typical_loop_;  // half of the loops beside other work take longer
};

}  // namespace official::compute
