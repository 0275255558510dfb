#include "utils/compute/cpu/parallel.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "utils/compute/cpu/simd.h"

namespace official::compute {
namespace {

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
  CHECK(ranges <= threads);
  CHECK(ranges <= std::max<int64_t>(n == 0 ? 0 : 1, n / grain + (n % grain != 0)));
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

TEST_CASE("WithSimd runs its lambda once") {
  std::vector<float> x(100, 1.5f), y(100);
  WithSimd([&] {
    for (size_t i = 0; i < x.size(); ++i) y[i] += x[i] * x[i];
  });
  CHECK(y == std::vector<float>(100, 2.25f));
}

}  // namespace
}  // namespace official::compute
