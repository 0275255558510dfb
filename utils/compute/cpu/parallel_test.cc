#include "utils/compute/cpu/parallel.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "utils/compute/cpu/simd.h"

// As oneDNN was compiled with them.
extern "C" {
void GOMP_parallel(void (*run)(void*), void* data, unsigned num_threads, unsigned flags);
void GOMP_barrier();
int omp_get_thread_num();
int omp_get_num_threads();
int omp_get_max_threads();
int omp_in_parallel();
}

namespace official::compute {
namespace {

template <typename F>
void ParallelRunForTest(int parts, F f) {
  ParallelRun(
      parts, [](void* context, int part) { (*static_cast<F*>(context))(part); }, &f);
}

TEST_CASE("ParallelFor covers the range once, whatever the number of threads") {
  const int before = NumThreads();
  const int threads = GENERATE(1, 2, 3, 8);
  const int64_t n = GENERATE(0, 1, 2, 7, 1000), grain = GENERATE(1, 3, 5000);
  SetNumThreads(threads);
  std::vector<int> visits(n, 0);
  std::atomic<int> ranges{0};
  ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
    ++ranges;
    for (int64_t i = begin; i < end; ++i) ++visits[i];
  });
  CHECK(visits == std::vector<int>(n, 1));
  CHECK(ranges <= (threads == 1 ? 1 : 4 * threads));
  CHECK(ranges <= std::max<int64_t>(n == 0 ? 0 : 1, n / grain + (n % grain != 0)));
  SetNumThreads(before);
}

TEST_CASE("A thread has its number of threads, within limits, and the process another") {
  const int before = NumThreads(), by_default = DefaultNumThreads();
  SetNumThreads(by_default + 1);
  CHECK(NumThreads() == by_default + 1);
  SetNumThreads(2'000'000);
  CHECK(NumThreads() == 1024);
  CHECK(DefaultNumThreads() == by_default);
  SetNumThreads(before);
}

// Under the thread sanitizer this also shows that the hand-over to the threads and back is understood.
TEST_CASE("What was written before a loop is seen in it, and what it writes afterwards") {
  SetNumThreads(2);
  std::vector<unsigned> values(64, 0);
  for (int round = 0; round < 100; ++round) {
    for (unsigned& v : values) v += 1;
    ParallelFor(64, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] *= 2;
    });
  }
  CHECK(values[0] == values[63]);
}

TEST_CASE("A thread without a core keeps nobody waiting: the others take its parts") {
  SetNumThreads(2);
  ParallelFor(2, 1, [](int64_t, int64_t) {});  // starts the threads
  std::atomic<bool> held{false}, release{false};
  std::thread other([&] {
    // All that one thread can do is done by it, while the other one is in the first part.
    SetNumThreads(2);
    std::atomic<int> parts{0};
    ParallelRunForTest(5, [&](int part) {
      if (part == 0) {
        held = true;
        while (parts < 4) std::this_thread::yield();
      } else {
        ++parts;
      }
    });
    release = parts == 4;
  });
  other.join();
  CHECK(release);
}

TEST_CASE("Beside endless loops every part still runs once, and threads wait for no core for long") {
  SetNumThreads(2);
  std::atomic<bool> ending = false;
  std::vector<std::thread> loops;
  for (int i = 0; i < 3; ++i) {
    loops.emplace_back([&] {
      while (!ending) {
      }
    });
  }
  // Long enough for the threads to see that others want their cores, and to lend each other theirs.
  std::vector<int64_t> work(8, 0);
  int64_t rounds = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    ParallelRunForTest(static_cast<int>(work.size()), [&](int part) {
      const auto part_end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
      while (std::chrono::steady_clock::now() < part_end) {
      }
      ++work[part];
    });
  }
  ending = true;
  for (std::thread& loop : loops) loop.join();
  CHECK(rounds > 0);
  CHECK(work == std::vector<int64_t>(work.size(), rounds));
}

TEST_CASE("A loop within a loop runs on one thread, and loops of several threads at the same time") {
  std::vector<std::thread> threads;
  std::atomic<int64_t> sum{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      SetNumThreads(3);
      for (int round = 0; round < 200; ++round) {
        ParallelFor(9, 1, [&](int64_t begin, int64_t end) {
          const std::thread::id own = std::this_thread::get_id();
          ParallelFor(end - begin, 1, [&](int64_t first, int64_t last) {
            if (std::this_thread::get_id() == own) sum += last - first;
          });
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sum == 3 * 200 * 9);
}

TEST_CASE("What oneDNN calls of OpenMP runs on our threads") {
  SetNumThreads(3);
  const int outside = omp_get_num_threads();
  CHECK(outside == 1);
  CHECK(omp_get_max_threads() == 3);
  CHECK_FALSE(omp_in_parallel());
  struct Shared {
    std::atomic<int> numbers{0}, before{0}, too_early{0};
  } shared;
  const auto run = [](void* data) {
    auto& s = *static_cast<Shared*>(data);
    for (int round = 1; round <= 50; ++round) {
      ++s.before;
      GOMP_barrier();
      if (s.before < omp_get_num_threads() * round) ++s.too_early;
      GOMP_barrier();
    }
    s.numbers += 1 << (4 * omp_get_thread_num());
    if (!omp_in_parallel()) s.numbers = -1;
  };
  for (int round = 0; round < 20; ++round) GOMP_parallel(run, &shared, round % 2 == 0 ? 3 : 0, 0), shared.before = 0;
  CHECK(shared.numbers == 20 * 0x111);
  CHECK(shared.too_early == 0);
}

TEST_CASE("oneDNN's loops have as many parts as they are given, on no more threads than there are") {
  struct Seen {
    std::atomic<int> parts[5] = {};
    std::atomic<int> most_threads = 0;
  };
  const int before = NumThreads(), threads = GENERATE(1, 2, 8);
  SetNumThreads(threads);
  {
    const OnednnParts divided(5);
    CHECK(omp_get_max_threads() == 5);
    for (const unsigned asked : {0u, 5u}) {
      Seen seen;
      GOMP_parallel(
          [](void* context) {
            Seen& s = *static_cast<Seen*>(context);
            if (omp_get_num_threads() == 5) ++s.parts[omp_get_thread_num()];
            int most = s.most_threads;
            while (most < ThreadNumber() + 1 && !s.most_threads.compare_exchange_weak(most, ThreadNumber() + 1)) {
            }
          },
          &seen, asked, 0);
      for (const std::atomic<int>& visits : seen.parts) CHECK(visits == 1);
      CHECK(seen.most_threads <= MostThreads());
    }
  }
  CHECK(omp_get_max_threads() == threads);
  SetNumThreads(before);
}

TEST_CASE("A library finds our functions before libgomp's") {
  for (const char* const name : {"GOMP_parallel", "GOMP_barrier", "omp_get_max_threads", "omp_get_num_threads",
                                 "omp_get_thread_num", "omp_in_parallel"}) {
    CAPTURE(name);
    Dl_info in_use, own;
    void* const address = dlsym(RTLD_DEFAULT, name);
    REQUIRE(address != nullptr);
    REQUIRE(dladdr(address, &in_use) != 0);
    REQUIRE(dladdr(reinterpret_cast<void*>(&NumThreads), &own) != 0);
    CHECK(in_use.dli_fbase == own.dli_fbase);
  }
}

TEST_CASE("Threads that run a loop have numbers of their own") {
  SetNumThreads(3);
  const int most = MostThreads();
  std::vector<std::atomic<bool>> in_use(most);
  std::atomic<int> twice = 0, outside = 0;
  for (int round = 0; round < 50; ++round) {
    ParallelFor(1000, 1, [&](int64_t, int64_t) {
      const int thread = ThreadNumber();
      if (thread < 0 || thread >= most) ++outside;
      if (in_use[thread].exchange(true)) ++twice;
      std::this_thread::yield();
      in_use[thread] = false;
    });
  }
  CHECK(twice == 0);
  CHECK(outside == 0);
  CHECK(ThreadNumber() == 0);
}

// Computes for so long.
void Compute(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST_CASE("Where other work wants all cores, spare threads take part in long loops") {
  if (access("/proc/thread-self/schedstat", R_OK) != 0) return;  // nothing tells how long a thread waits
  std::atomic<bool> ending = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 2 * static_cast<int>(std::thread::hardware_concurrency()); ++i) {
    others.emplace_back([&ending] {
      while (!ending) {
      }
    });
  }
  std::atomic<bool> spare_seen = false;
  bool each_part_once = true;
  std::thread owner([&] {
    SetNumThreads(2);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!spare_seen && std::chrono::steady_clock::now() < end) {
      std::vector<std::atomic<int>> runs(8);
      ParallelRunForTest(8, [&](int part) {
        Compute(std::chrono::microseconds(500));
        ++runs[part];
        if (ThreadNumber() >= 2) spare_seen = true;
      });
      for (const std::atomic<int>& n : runs) each_part_once = each_part_once && n == 1;
    }
    // Parts that wait for each other, each of them on a thread.
    for (const int parts : {2, 12, 2, 16}) {
      std::atomic<int> begun = 0;
      GOMP_parallel(
          [](void* data) {
            ++*static_cast<std::atomic<int>*>(data);
            GOMP_barrier();
          },
          &begun, parts, 0);
      each_part_once = each_part_once && begun == parts;
    }
  });
  owner.join();
  ending = true;
  for (std::thread& other : others) other.join();
  CHECK(spare_seen);
  CHECK(each_part_once);
}

TEST_CASE("WithSimd runs its lambda once") {
  std::vector<float> x(100, 1.5f), y(100);
  WithSimd([&] {
    for (size_t i = 0; i < x.size(); ++i) y[i] += x[i] * x[i];
  });
  CHECK(y == std::vector<float>(100, 2.25f));
}

TEST_CASE("Threads of loops are scheduled in short slices, where the kernel has them") {
  // The kernel's struct sched_attr: nanoseconds of a slice, 0 where it tells none, are at byte 24.
  const auto slice = [] {
    uint64_t attr[6] = {};
    return syscall(SYS_sched_getattr, 0, attr, sizeof attr, 0) == 0 ? attr[3] : 0;
  };
  // Of threads that have run no loop, and then one.
  uint64_t before = 0;
  std::vector<uint64_t> during(2);
  std::thread owner([&] {
    before = slice();
    SetNumThreads(2);
    ParallelRunForTest(2, [&](int part) {
      during[part] = slice();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that each has a part
    });
  });
  owner.join();
  if (before == 0) return;
  CHECK(during == std::vector<uint64_t>{100'000, 100'000});
}

}  // namespace
}  // namespace official::compute
