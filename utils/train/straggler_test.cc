#include "utils/train/straggler.h"

#include <catch2/catch.hpp>

namespace official::train {
namespace {

using Clock = StragglerWatch::Clock;

// Adds steps of a second in which the workers compute so long, and returns after how many of them one was found.
std::vector<int> FoundAfter(StragglerWatch& watch, const std::vector<float>& seconds, int steps) {
  std::vector<int> found;
  for (int step = 0; step <= steps; ++step) {
    if (watch.Add(seconds, Clock::time_point(std::chrono::seconds(step)))) found.push_back(step);
  }
  return found;
}

TEST_CASE("A worker that needs much longer than the others is found after 10 s, and then ever more rarely") {
  StragglerWatch watch;
  CHECK(FoundAfter(watch, {0.2F, 0.3F, 0.9F, 0.3F}, 75) == std::vector<int>{10, 30, 70});
}

TEST_CASE("It is named with its time and that of the others") {
  StragglerWatch watch;
  std::optional<Straggler> found;
  for (int step = 0; step <= 5; ++step) {
    found = watch.Add(std::vector<float>{1.8F, 0.4F}, Clock::time_point(std::chrono::seconds(2 * step)));
  }
  REQUIRE(found);
  CHECK(found->worker == 0);
  CHECK(found->seconds == Approx(1.8));
  CHECK(found->others_seconds == Approx(0.4));
}

TEST_CASE("Workers that differ little, or by little of the time, keep nobody waiting") {
  const std::vector<float> seconds =
      GENERATE(std::vector<float>{0.6F, 0.8F, 0.7F}, std::vector<float>{0.01F, 0.09F}, std::vector<float>{0.9F});
  StragglerWatch watch;
  CHECK(FoundAfter(watch, seconds, 50).empty());
}

TEST_CASE("A worker that was slow once is not found later") {
  StragglerWatch watch;
  CHECK(FoundAfter(watch, {0.2F, 0.9F}, 10) == std::vector<int>{10});
  for (int step = 11; step <= 60; ++step) {
    CHECK_FALSE(watch.Add(std::vector<float>{0.5F, 0.5F}, Clock::time_point(std::chrono::seconds(step))));
  }
}

}  // namespace
}  // namespace official::train
