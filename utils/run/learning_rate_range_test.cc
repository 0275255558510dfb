#include "utils/run/learning_rate_range.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

namespace official::run {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("The rates rise by the same factor from the first to the last") {
  CHECK(TestedRate(0) == Approx(1e-7));
  CHECK(TestedRate(kTestedRates - 1) == Approx(1));
  CHECK(TestedRate(51) / TestedRate(50) == Approx(TestedRate(1) / TestedRate(0)));
}

TEST_CASE("The smoothed loss is the mean that a decay of 0.98 leaves, without its start at 0") {
  std::vector<TestedLoss> losses;
  CHECK(AddLoss(losses, 3));
  CHECK(losses[0].smoothed == Approx(3));
  CHECK(AddLoss(losses, 1));
  CHECK(losses[1].smoothed == Approx((0.98 * 0.02 * 3 + 0.02 * 1) / (1 - 0.98 * 0.98)));
}

TEST_CASE("The steepest descent is found, and a divergence ends the test") {
  std::vector<TestedLoss> losses;
  int steps = 0;
  for (; steps < kTestedRates; ++steps) {
    // Falls fastest at step 50, and explodes from step 80 on.
    const double loss = steps < 80 ? 2 - std::tanh((steps - 50) / 5.0) : std::exp(steps - 80.0) * 10;
    if (!AddLoss(losses, loss)) break;
  }
  CHECK(steps > 80);
  CHECK(steps < 90);
  const auto chosen = SteepestDescent(losses);
  REQUIRE(chosen);
  CHECK(*chosen >= 48);
  CHECK(*chosen <= 52);
  CHECK_THAT(LossTable(losses, chosen), Contains("<- steepest descent"));
}

// Adds noise between -0.05 and 0.05, as the losses of a small batch have it.
class NoisyLoss {
 public:
  explicit NoisyLoss(uint32_t seed) : random_(seed) {}
  double operator()(double loss) { return loss + 0.1 * (random_() / 4294967296.0 - 0.5); }

 private:
  std::mt19937 random_;
};

TEST_CASE("Losses that only scatter before they fall do not hide the fall") {
  const auto seed = static_cast<uint32_t>(GENERATE(range(1, 21)));
  NoisyLoss noisy(seed);
  std::vector<TestedLoss> losses;
  for (int i = 0; i < kTestedRates; ++i) AddLoss(losses, noisy(0.5 - 0.1 * (1 + std::tanh((i - 65) / 10.0))));
  const auto chosen = SteepestDescent(losses);
  CAPTURE(seed);
  REQUIRE(chosen);
  CHECK(*chosen >= 55);
  CHECK(*chosen <= 75);
}

TEST_CASE("A training that diverges at high rates, and falls back, has its steepest descent before that") {
  std::vector<TestedLoss> losses;
  for (int i = 0; i < kTestedRates; ++i) {
    if (!AddLoss(losses, i == 80 ? 40 : 2 - std::tanh((i - 50) / 5.0))) break;
  }
  REQUIRE(losses.size() == kTestedRates);
  const auto chosen = SteepestDescent(losses);
  REQUIRE(chosen);
  CHECK(*chosen >= 48);
  CHECK(*chosen <= 52);
}

TEST_CASE("Losses that only scatter give no rate") {
  const auto seed = static_cast<uint32_t>(GENERATE(range(1, 6)));
  NoisyLoss noisy(seed);
  std::vector<TestedLoss> losses;
  for (int i = 0; i < kTestedRates; ++i) AddLoss(losses, noisy(0.5));
  CAPTURE(seed);
  CHECK_FALSE(SteepestDescent(losses));
}

TEST_CASE("A loss that never falls, or too few steps, give no rate") {
  std::vector<TestedLoss> rising;
  for (int i = 0; i < 50; ++i) AddLoss(rising, 1 + 0.01 * i);
  CHECK_FALSE(SteepestDescent(rising));
  std::vector<TestedLoss> few;
  for (int i = 0; i < 30; ++i) AddLoss(few, 100 - i);
  CHECK_FALSE(SteepestDescent(few));
}

}  // namespace
}  // namespace official::run
