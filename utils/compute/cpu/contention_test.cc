#include "utils/compute/cpu/contention.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "utils/compute/cpu/affinity.h"

namespace official::compute {
namespace {

cpu_set_t ProcessorsOf(pid_t thread) {
  cpu_set_t processors;
  REQUIRE(sched_getaffinity(thread, sizeof processors, &processors) == 0);
  return processors;
}

bool Equal(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b); }

cpu_set_t Only(int processor) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(processor, &processors);
  return processors;
}

cpu_set_t Without(cpu_set_t processors, int processor) {
  CPU_CLR(processor, &processors);
  return processors;
}

std::vector<int> Numbers(const cpu_set_t& processors) {
  std::vector<int> numbers;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &processors)) numbers.push_back(p);
  }
  return numbers;
}

// Runs f with the number of another thread, which sleeps meanwhile.
template <typename F>
void WithThread(const F& f) {
  std::atomic<pid_t> id = 0;
  std::atomic<bool> end = false;
  std::thread thread([&] {
    id = gettid();
    id.notify_one();
    end.wait(false);
  });
  id.wait(0);
  f(id.load());
  end = true;
  end.notify_one();
  thread.join();
}

TEST_CASE("A thread is kept off a processor, moved to one, and free again") {
  const cpu_set_t all = ProcessorsOf(0);
  const std::vector<int> processors = Numbers(all);
  if (processors.size() < 2) return;
  WithThread([&](pid_t thread) {
    Affinity affinity(thread);
    affinity.KeepOff(processors[0]);
    CHECK(Equal(ProcessorsOf(thread), Without(all, processors[0])));
    affinity.MoveTo(processors[0]);
    CHECK(Equal(ProcessorsOf(thread), Only(processors[0])));
    affinity.KeepOff(processors[1]);
    CHECK(Equal(ProcessorsOf(thread), Without(all, processors[1])));
    affinity.Free();
    CHECK(Equal(ProcessorsOf(thread), all));
  });
}

TEST_CASE("What somebody else allows a thread meanwhile stays its limit") {
  const std::vector<int> processors = Numbers(ProcessorsOf(0));
  if (processors.size() < 2) return;
  WithThread([&](pid_t thread) {
    Affinity affinity(thread);
    affinity.KeepOff(processors[1]);
    const cpu_set_t only = Only(processors[1]);  // as taskset does
    REQUIRE(sched_setaffinity(thread, sizeof only, &only) == 0);
    affinity.MoveTo(processors[0]);
    CHECK(Equal(ProcessorsOf(thread), only));
    affinity.KeepOff(processors[1]);
    CHECK(Equal(ProcessorsOf(thread), only));
  });
}

TEST_CASE("A thread that shares its core with an endless loop sees that") {
  std::atomic<bool> ending = false;
  const int processor = Numbers(ProcessorsOf(0))[0];
  const auto stay = [processor] {
    const cpu_set_t only = Only(processor);
    sched_setaffinity(0, sizeof only, &only);
  };
  std::thread loop([&] {
    stay();
    while (!ending) {
    }
  });
  bool seen = false;
  std::thread thread([&] {
    stay();
    Contention contention;
    const auto end = Contention::Clock::now() + std::chrono::seconds(60);
    while (!seen && Contention::Clock::now() < end) seen = contention.Now(Contention::Clock::now());
  });
  thread.join();
  ending = true;
  loop.join();
  CHECK(seen);
}

}  // namespace
}  // namespace official::compute
