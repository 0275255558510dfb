#include "utils/compute/cpu/team.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

#include "utils/compute/cpu/contention.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/short_slices.h"

namespace official::compute {
namespace {

using Clock = Team::Clock;

// How long a thread that waits looks again and again before it sleeps. To wake a thread takes some microseconds, on a
// virtual machine some tens of them; but who looks keeps other work from the core.
constexpr Clock::duration kPatience = std::chrono::milliseconds(1);
constexpr Clock::duration kPatienceAmongOthers = std::chrono::microseconds(100);
constexpr Clock::duration kNoPatience = std::chrono::microseconds(5);
// So long the owner of a team looks for a part of a thread that may have no core, before it lends its own.
constexpr Clock::duration kBeforeLending = std::chrono::microseconds(100);

// A thread that waits for a core longer than this share of the time is crowded; where all are, spare threads help in
// loops that take so long.
constexpr double kCrowded = 0.4;
constexpr Clock::duration kLongLoop = std::chrono::microseconds(200);
// Spare threads keep each other waiting, so whether they are wanted is seen without them: so often.
constexpr Clock::duration kShortestWithSpares = std::chrono::seconds(1);
constexpr Clock::duration kLongestWithSpares = std::chrono::seconds(8);
constexpr Clock::duration kLookWithoutSpares = std::chrono::seconds(1);

// OMP_WAIT_POLICY: as OpenMP programs have it. None: as the machine is.
std::optional<bool> AlwaysPatient() {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  if (policy == nullptr) return std::nullopt;
  const std::string text = policy;
  if (text == "passive" || text == "PASSIVE") return false;
  if (text == "active" || text == "ACTIVE") return true;
  return std::nullopt;
}

thread_local Contention contention;

// How long the calling thread should look for what it waits for. Not at all beside spare threads, which could work in
// that time.
Clock::duration Patience(Clock::time_point now, bool with_spares) {
  static const std::optional<bool> always = AlwaysPatient();
  if (always) return *always ? kPatience : kNoPatience;
  if (with_spares) return Clock::duration::zero();
  return contention.Now(now) ? kPatienceAmongOthers : kPatience;
}

// Looks for a while; returns true if `value` is not `old` any more.
template <typename T>
bool LookFor(const Awaited<T>& value, T old, Clock::time_point end) {
  do {
    for (int i = 0; i < 32; ++i) {
      if (value.load() != old) return true;
      _mm_pause();
    }
  } while (Clock::now() < end);
  return false;
}

// Returns when `value` is not `old` any more, or earlier.
template <typename T>
void WaitWhile(const Awaited<T>& value, T old, bool with_spares) {
  for (int i = 0; i < 64; ++i) {
    if (value.load() != old) return;
    _mm_pause();
  }
  const Clock::time_point now = Clock::now();
  if (!LookFor(value, old, now + Patience(now, with_spares))) value.SleepWhile(old);
}

constexpr uint64_t kField = (1 << 20) - 1;
uint64_t Packed(int begin, int end, int threads) {
  return static_cast<uint64_t>(threads) << 40 | static_cast<uint64_t>(end) << 20 | static_cast<uint64_t>(begin);
}

}  // namespace

thread_local Place place;

Team::Team() : shares_(new Share[kMostThreads]), typical_loop_(kLongLoop) {
  UseShortSlices();  // of the owner; the threads that it starts inherit them
}

Team::~Team() {
  ending_ = true;
  for (Awaited<uint32_t>* const loops : {&loops_, &loops_with_spares_}) {
    loops->Add(1);
    loops->WakeAll();
  }
  for (const auto& helper : helpers_) helper->thread.join();
}

void Team::Run(int parts, int threads, int most_threads, RunFunction run, void* context) {
  threads = std::clamp(threads, 1, kMostThreads);
  StartHelpers(threads - 1, /*are_spares=*/false);
  LookAround();
  const bool is_timed = is_contended_;
  const Clock::time_point began = is_timed ? Clock::now() : Clock::time_point();
  if (const int most = std::min({parts, most_threads, kMostThreads});
      is_timed && WantsSpares(began) && most > threads) {
    threads = std::max(threads, std::min(most, TryToStartSpares(most - 1) + 1));
  }
  run_ = run;
  context_ = context;
  parts_ = parts;
  done_.Reset(0);
  for (int thread = 0; thread < threads; ++thread) {
    const int begin = static_cast<int>(int64_t{parts} * thread / threads);
    const int end = static_cast<int>(int64_t{parts} * (thread + 1) / threads);
    shares_[thread].left.store(Packed(begin, end, threads), std::memory_order_release);
  }
  loops_.Add(1);
  loops_.WakeAll();
  if (threads - 1 > num_regular_) {
    loops_with_spares_.Add(1);
    loops_with_spares_.WakeAll();
  }
  WorkOn(0);
  for (int done = done_.load(); done != parts; done = done_.load()) {
    if (is_contended_ && !uses_spares_) LendCore(done);
    WaitWhile(done_, done, uses_spares_);
  }
  if (is_timed) Remember(Clock::now() - began);
}

void Team::StartHelpers(int count, bool are_spares) {
  if (static_cast<int>(helpers_.size()) < count) helpers_.reserve(count);  // no thread is without a place
  // Where spares have started, what comes later wakes with them.
  are_spares = are_spares || num_regular_ < static_cast<int>(helpers_.size());
  Awaited<uint32_t>& loops = are_spares ? loops_with_spares_ : loops_;
  while (static_cast<int>(helpers_.size()) < count) {
    auto helper = std::make_unique<Helper>();
    const char* const name = are_spares ? "spare" : "helper";  // in ps -T and top -H
    helper->thread =
        std::thread([this, number = static_cast<int>(helpers_.size()) + 1, id = &helper->id, name, &loops] {
          pthread_setname_np(pthread_self(), name);
          *id = gettid();
          Help(number, loops);
        });
    helpers_.push_back(std::move(helper));
    if (!are_spares) num_regular_ = static_cast<int>(helpers_.size());
  }
}

int Team::TryToStartSpares(int count) {
  try {
    StartHelpers(count, /*are_spares=*/true);
  } catch (const std::system_error&) {
    UseSpares(false);  // it goes without, and tries again later
  }
  return static_cast<int>(helpers_.size());
}

bool Team::WantsSpares(Clock::time_point now) {
  const bool contended = contention.Now(now);
  if (uses_spares_ && now >= spares_until_) UseSpares(false);
  if (!uses_spares_ && contended && is_crowded_ && contention.Waiting() > kCrowded) {
    const bool again = now < spares_until_ + kLookWithoutSpares;
    spares_stay_ = again ? std::min(2 * spares_stay_, kLongestWithSpares) : kShortestWithSpares;
    spares_until_ = now + spares_stay_;
    UseSpares(true);
  }
  return uses_spares_ && typical_loop_ > kLongLoop;
}

void Team::UseSpares(bool use) {
  uses_spares_ = use;
  contention.Forget();
  processor_ = -1;  // LookAround frees the helpers or keeps them off
}

void Team::Remember(Clock::duration took) {
  const Clock::duration step = typical_loop_ / 16;
  typical_loop_ = std::clamp<Clock::duration>(typical_loop_ + (took > typical_loop_ ? step : -step), kLongLoop / 16,
                                              16 * kLongLoop);
}

void Team::LookAround() {
  const uint32_t changes = contention_changes_.load(std::memory_order_acquire);
  const int processor = sched_getcpu();
  if (changes == seen_changes_ && (!is_contended_ || processor == processor_)) return;
  seen_changes_ = changes;
  processor_ = processor;
  is_contended_ = false;
  int num_crowded = 0;
  for (int h = 0; h < num_regular_; ++h) {
    Helper& helper = *helpers_[h];
    const bool contended = shares_[h + 1].contended.load(std::memory_order_relaxed);
    is_contended_ = is_contended_ || contended;
    num_crowded += shares_[h + 1].crowded.load(std::memory_order_relaxed);
    const int keep_off = contended && !uses_spares_ ? processor : -1;
    if (keep_off != helper.kept_off) KeepOff(helper, keep_off);
  }
  is_crowded_ = 2 * num_crowded >= num_regular_;
}

void Team::KeepOff(Helper& helper, int processor) {
  if (!helper.affinity) helper.affinity.emplace(helper.id);
  helper.kept_off = processor;
  if (processor >= 0) {
    helper.affinity->KeepOff(processor);
  } else {
    helper.affinity->Free();
  }
}

void Team::LendCore(int done) {
  if (LookFor(done_, done, Clock::now() + kBeforeLending)) return;
  bool lent = false;
  for (size_t h = 0; h < helpers_.size(); ++h) {
    Helper& helper = *helpers_[h];
    helper.borrows = helper.kept_off >= 0 && shares_[h + 1].works.load(std::memory_order_relaxed);
    if (helper.borrows) helper.affinity->MoveTo(sched_getcpu());
    lent = lent || helper.borrows;
  }
  if (!lent) return;
  done_.SleepWhile(done);
  for (const auto& helper : helpers_) {
    if (helper->borrows) KeepOff(*helper, sched_getcpu());
  }
}

void Team::Barrier() {
  const uint32_t passed = barriers_.load();
  if (at_barrier_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts_) {
    at_barrier_.store(0, std::memory_order_relaxed);
    barriers_.Add(1);
    barriers_.WakeAll();
    return;
  }
  while (barriers_.load() == passed) WaitWhile(barriers_, passed, uses_spares_);
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
    if (done == 0) shares_[thread].works.store(true, std::memory_order_relaxed);
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
  shares_[thread].works.store(false, std::memory_order_relaxed);
  place = {};
  const int parts = parts_;
  if (done_.Add(done) == parts && thread > 0) done_.WakeOne();
}

void Team::Help(int thread, Awaited<uint32_t>& loops) {
  FlushDenormals();
  Share& share = shares_[thread];
  for (;;) {
    const uint32_t seen = loops.load();
    if (ending_) return;  // after the load: the owner counts a loop when it has set this
    const bool contended = contention.Now(Clock::now()), crowded = contention.Waiting() > kCrowded;
    if (contended != share.contended || crowded != share.crowded) {
      share.contended = contended;
      share.crowded = crowded;
      contention_changes_.fetch_add(1, std::memory_order_release);
    }
    WorkOn(thread);
    WaitWhile(loops, seen, uses_spares_);
  }
}

}  // namespace official::compute
