#include "utils/run/schedule_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

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

// The columns that are full in a row of a plot.
int FullBlocks(const std::string& line) {
  return static_cast<int>(std::vector<std::string>(absl::StrSplit(line, "█")).size()) - 1;
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

TEST_CASE("A run of the most steps there are is shown at 20 of them") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> steps =
      Steps(SchedulePoints([](int64_t step) { return static_cast<double>(step); }, kMost));
  REQUIRE(steps.size() == 20);
  CHECK(steps.front() == 0);
  CHECK(steps[1] == (kMost - 1) / 19);
  CHECK(steps.back() == kMost - 1);
  CHECK(std::is_sorted(steps.begin(), steps.end()));
  // Not all steps of the first rate are looked at.
  const auto doubled = [](int64_t step) { return step < kMost / 2 ? 0.5 : 1; };
  CHECK(SchedulePoints(doubled, kMost).size() == 20);
  const std::vector<std::string> lines = absl::StrSplit(ScheduleTable(doubled, kMost, /*steps_per_epoch=*/20), '\n');
  REQUIRE(lines.size() == 1 + 20 + 1 + 6 + 1 + 1);
  CHECK(FullBlocks(lines[22]) == 30);  // a rate of 1 in the second half
  CHECK(FullBlocks(lines[27]) == 60);
}

TEST_CASE("The table has epochs and a plot") {
  const std::string table = ScheduleTable(Halved, 90, /*steps_per_epoch=*/20);
  CHECK_THAT(table, Contains("          30       1.50  0.25\n"));
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  REQUIRE(lines.size() == 1 + 4 + 1 + 6 + 1 + 1);
  CHECK_THAT(lines[6], Contains("       0.5 ████") && !Contains("▁"));
  // A third of the 60 columns is full in each row; an eighth of the largest rate is three quarters of one row more.
  CHECK(FullBlocks(lines[6]) == 20);   // a rate of 0.5
  CHECK(FullBlocks(lines[9]) == 40);   // and of 0.25: half the height
  CHECK(FullBlocks(lines[11]) == 60);  // and of 0.125: a quarter of it
  CHECK_THAT(lines[12], Contains("step 0") && Contains("89"));
}

}  // namespace
}  // namespace official::run
