#include "utils/run/schedule_table.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_split.h"

namespace official::run {
namespace {

using Catch::Matchers::Contains;

double Halved(int64_t step) { return step < 30 ? 0.5 : step < 60 ? 0.25 : 0.125; }

std::vector<int64_t> Steps(const std::vector<SchedulePoint>& points) {
  std::vector<int64_t> steps;
  for (const SchedulePoint& point : points) steps.push_back(point.step);
  return steps;
}

TEST_CASE("A schedule of few rates is shown where it changes") {
  CHECK(Steps(SchedulePoints(Halved, 100)) == std::vector<int64_t>{0, 30, 60, 99});
  CHECK(Steps(SchedulePoints(Halved, 61)) == std::vector<int64_t>{0, 30, 60});
  CHECK(Steps(SchedulePoints(Halved, 1)) == std::vector<int64_t>{0});
  CHECK(SchedulePoints(Halved, 100)[1].learning_rate == 0.25);
}

TEST_CASE("A schedule that changes at each step is shown at 20 of them") {
  const auto ramp = [](int64_t step) { return static_cast<double>(step); };
  const std::vector<SchedulePoint> points = SchedulePoints(ramp, 1001);
  CHECK(points.size() == 20);
  CHECK(points.front().step == 0);
  CHECK(points.back().step == 1000);
  CHECK(std::all_of(points.begin(), points.end(), [&](const auto& p) { return p.learning_rate == ramp(p.step); }));
}

TEST_CASE("The table has epochs and a plot") {
  const std::string table = ScheduleTable(Halved, 90, /*steps_per_epoch=*/20);
  CHECK_THAT(table, Contains("          30       1.50  0.25\n"));
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  REQUIRE(lines.size() == 1 + 4 + 1 + 6 + 1 + 1);
  CHECK_THAT(lines[6], Contains("       0.5 ████") && !Contains("▁"));
  // A third of the 60 columns is full in each row; an eighth of the largest rate is three quarters of one row more.
  const auto full = [](const std::string& line) {
    return static_cast<int>(std::vector<std::string>(absl::StrSplit(line, "█")).size()) - 1;
  };
  CHECK(full(lines[6]) == 20);   // a rate of 0.5
  CHECK(full(lines[9]) == 40);   // and of 0.25: half the height
  CHECK(full(lines[11]) == 60);  // and of 0.125: a quarter of it
  CHECK_THAT(lines[12], Contains("step 0") && Contains("89"));
}

}  // namespace
}  // namespace official::run
