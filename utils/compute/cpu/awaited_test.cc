#include "utils/compute/cpu/awaited.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>
#include <vector>

namespace official::compute {
namespace {

TEST_CASE("Who would wait for a change that has been does not sleep") {
  Awaited<int> value;
  REQUIRE(value.Add(3) == 3);
  value.SleepWhile(2);
  REQUIRE(value.load() == 3);
  value.Reset(0);
  REQUIRE(value.load() == 0);
}

TEST_CASE("No change is missed, however soon it comes before or after somebody sleeps") {
  constexpr uint32_t kTurns = 20000;
  constexpr int kFollowers = 3;
  Awaited<uint32_t> turn;
  Awaited<int> answers;
  std::vector<std::thread> followers;
  for (int f = 0; f < kFollowers; ++f) {
    followers.emplace_back([&] {
      for (uint32_t seen = 0; seen < kTurns; ++seen) {
        while (turn.load() == seen) turn.SleepWhile(seen);
        if (answers.Add(1) == kFollowers) answers.WakeOne();
      }
    });
  }
  for (uint32_t t = 0; t < kTurns; ++t) {
    answers.Reset(0);
    turn.Add(1);
    turn.WakeAll();
    for (int some = answers.load(); some != kFollowers; some = answers.load()) answers.SleepWhile(some);
  }
  for (std::thread& follower : followers) follower.join();
  REQUIRE(turn.load() == kTurns);
}

}  // namespace
}  // namespace official::compute
