#include "utils/run/run_time.h"

#include <catch2/catch.hpp>
#include <limits>

namespace official::run {
namespace {

TEST_CASE("The time of a run is that of its steps and evaluations") {
  const RunTime time = {.steps = 600, .evaluations = 2, .step_seconds = 6.2, .evaluation_seconds = 1.5};
  CHECK(time.KnownSeconds() == Approx(3723));
  CHECK(RunTimeText(time) == "about 1:02:03: 600 steps of about 6.2 s, 2 evaluations of about 1.5 s");
  CHECK(RunTimeText({.steps = 1, .evaluations = 1, .step_seconds = 0.25, .evaluation_seconds = 90}) ==
        "about 1:30: 1 step of about 0.25 s, 1 evaluation of about 1:30");
  // The sum is shown as 2^62 s.
  CHECK(RunTimeText({.steps = std::numeric_limits<int64_t>::max(), .step_seconds = 2}) ==
        "about 1281023894007607:45:04: 9223372036854775807 steps of about 2 s");
  CHECK(RunTimeText({.steps = 3, .step_seconds = 0.5}) == "about 1.5 s: 3 steps of about 0.5 s");
}

TEST_CASE("Evaluations of unknown length are named, and nothing is left only if there are none") {
  CHECK(RunTimeText({.steps = 4, .evaluations = 2, .step_seconds = 0.5}) ==
        "more than about 2 s: 4 steps of about 0.5 s, 2 evaluations of unknown length");
  CHECK(RunTimeText({.evaluations = 1}) == "not known: 1 evaluation of unknown length");
  CHECK(RunTimeText({}) == "nothing is left");
}

}  // namespace
}  // namespace official::run
