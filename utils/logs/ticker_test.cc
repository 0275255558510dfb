#include "utils/logs/ticker.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "utils/logs/captured_log.h"

namespace official::logs {
namespace {

void WaitFor(const std::atomic<int>& count, int wanted) {
  while (count < wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("A ticker calls until it ends; one that began earlier waits meanwhile") {
  CapturedLog log(LogFormat::kBar);
  std::atomic<int> outer = 0, inner = 0;
  Ticker first([&] { ++outer; });
  WaitFor(outer, 2);
  {
    Ticker second([&] { ++inner; });
    WaitFor(inner, 1);
    // A call that had begun is over by now.
    const int before = outer;
    WaitFor(inner, 4);
    CHECK(outer == before);
  }
  const int after = inner;
  WaitFor(outer, outer + 2);
  CHECK(inner == after);
}

TEST_CASE("The format none has no ticks") {
  CapturedLog log(LogFormat::kNone);
  std::atomic<int> count = 0;
  {
    Ticker ticker([&] { ++count; });
  }
  CHECK(count == 0);
}

}  // namespace
}  // namespace official::logs
