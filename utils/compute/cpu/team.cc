#include "utils/compute/cpu/team.h"

#include <sys/resource.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>

#include "utils/compute/cpu/parallel.h"

namespace official::compute {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread that waits looks again and again before it sleeps. To wake a thread takes some microseconds, on a
// virtual machine some tens of them; but where threads are more than cores, who looks keeps those from the core for
// whom it waits.
constexpr Clock::duration kPatience = std::chrono::milliseconds(1);
constexpr Clock::duration kPatienceAmongOthers = std::chrono::microseconds(5);
// Others want a thread's core if it was put off it twice within the window; it believes so for a while then. Once may
// be the kernel's own work.
constexpr Clock::duration kWindow = std::chrono::milliseconds(20);
constexpr Clock::duration kOthersStay = std::chrono::milliseconds(100);

// OMP_WAIT_POLICY: as OpenMP programs have it. None: as the machine is.
std::optional<bool> AlwaysPatient() {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  if (policy == nullptr) return std::nullopt;
  const std::string text = policy;
  if (text == "passive" || text == "PASSIVE") return false;
  if (text == "active" || text == "ACTIVE") return true;
  return std::nullopt;
}

// How often the calling thread was put off its core though it had work.
int64_t TimesPreempted() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

// How long the calling thread should look for what it waits for. Of that thread.
class Patience {
 public:
  Clock::duration Now(Clock::time_point now) {
    static const std::optional<bool> always = AlwaysPatient();
    if (always) return *always ? kPatience : kPatienceAmongOthers;
    if (now > next_look_) {
      next_look_ = now + kWindow;
      const int64_t times = TimesPreempted();
      if (times > times_preempted_ + 1) others_until_ = now + kOthersStay;
      times_preempted_ = times;
    }
    return now < others_until_ ? kPatienceAmongOthers : kPatience;
  }

 private:
  Clock::time_point next_look_, others_until_;
  int64_t times_preempted_ = 0;
};

thread_local Patience patience;

// Returns when `value` is not `old` any more.
template <typename T>
void WaitWhile(const std::atomic<T>& value, T old) {
  for (int i = 0; i < 64; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  const Clock::time_point start = Clock::now(), end = start + patience.Now(start);
  do {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      _mm_pause();
    }
  } while (Clock::now() < end);
  value.wait(old, std::memory_order_acquire);
}

constexpr uint64_t kField = (1 << 20) - 1;
uint64_t Packed(int begin, int end, int threads) {
  return static_cast<uint64_t>(threads) << 40 | static_cast<uint64_t>(end) << 20 | static_cast<uint64_t>(begin);
}

}  // namespace

thread_local Place place;

Team::Team() : shares_(new Share[kMostThreads]) {}

Team::~Team() {
  ending_ = true;
  loops_.fetch_add(1);
  loops_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::Run(int parts, int threads, RunFunction run, void* context) {
  threads = std::clamp(threads, 1, kMostThreads);
  while (static_cast<int>(helpers_.size()) + 1 < threads) {
    helpers_.emplace_back([this, thread = static_cast<int>(helpers_.size()) + 1] { Help(thread); });
  }
  run_ = run;
  context_ = context;
  parts_ = parts;
  done_.store(0, std::memory_order_relaxed);
  for (int thread = 0; thread < threads; ++thread) {
    const int begin = static_cast<int>(int64_t{parts} * thread / threads);
    const int end = static_cast<int>(int64_t{parts} * (thread + 1) / threads);
    shares_[thread].left.store(Packed(begin, end, threads), std::memory_order_release);
  }
  loops_.fetch_add(1);
  loops_.notify_all();
  WorkOn(0);
  for (int done = done_.load(std::memory_order_acquire); done != parts; done = done_.load(std::memory_order_acquire)) {
    WaitWhile(done_, done);
  }
}

void Team::Barrier() {
  const uint32_t passed = barriers_.load(std::memory_order_acquire);
  if (at_barrier_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts_) {
    at_barrier_.store(0, std::memory_order_relaxed);
    barriers_.fetch_add(1);
    barriers_.notify_all();
    return;
  }
  while (barriers_.load(std::memory_order_acquire) == passed) WaitWhile(barriers_, passed);
}

int Team::Take(Share& share, int taker, bool first) {
  uint64_t left = share.left.load(std::memory_order_acquire);
  for (;;) {
    const int begin = static_cast<int>(left & kField), end = static_cast<int>(left >> 20 & kField);
    const int threads = static_cast<int>(left >> 40);
    if (begin >= end || taker >= threads) return -1;
    const uint64_t taken = first ? Packed(begin + 1, end, threads) : Packed(begin, end - 1, threads);
    if (share.left.compare_exchange_weak(left, taken, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return first ? begin : end - 1;
    }
  }
}

void Team::WorkOn(int thread) {
  // The loop is not over before what was done is counted.
  int done = 0;
  const auto run = [&](int part) {
    place = {part, parts_, thread, /*in_region=*/true, this};
    run_(context_, part);
    ++done;
  };
  for (int part; (part = Take(shares_[thread], thread, /*first=*/true)) >= 0;) run(part);
  const int threads = static_cast<int>(shares_[0].left.load(std::memory_order_acquire) >> 40);
  for (int i = 1; i < threads; ++i) {
    for (int part; (part = Take(shares_[(thread + i) % threads], thread, /*first=*/false)) >= 0;) run(part);
  }
  if (done == 0) return;
  place = {};
  const int parts = parts_;
  if (done_.fetch_add(done, std::memory_order_acq_rel) + done == parts && thread > 0) done_.notify_one();
}

void Team::Help(int thread) {
  FlushDenormals();
  while (!ending_) {
    const uint32_t seen = loops_.load(std::memory_order_acquire);
    WorkOn(thread);
    WaitWhile(loops_, seen);
  }
}

}  // namespace official::compute
