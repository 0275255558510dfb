#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "official/report/axis.h"
#include "official/report/chart.h"
#include "official/report/html.h"
#include "official/report/series.h"
#include "official/report/summary.h"

namespace official::report {
namespace {

using Catch::Matchers::Contains;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST_CASE("A series of any length keeps its sums, ends and extremes in bounded memory") {
  Series series;
  double sum = 0;
  for (int64_t step = 0; step < 100000; ++step) {
    const double value = step == 77777 ? -50 : step == 12345 ? 60 : 1e-3 * static_cast<double>(step % 100);
    series.Add(step, value);
    sum += value;
  }
  CHECK(series.buckets().size() <= Series::kMaxBuckets);
  CHECK(series.buckets().size() > Series::kMaxBuckets / 2);
  const Bucket total = Total(series.buckets());
  CHECK(total.count == 100000);
  CHECK(total.first_step == 0);
  CHECK(total.last_step == 99999);
  CHECK(total.first == 0);
  CHECK(total.last == 0.099);
  CHECK(total.min == -50);
  CHECK(total.max == 60);
  CHECK_FALSE(total.min_first);
  CHECK(total.sum == Approx(sum));
  for (size_t i = 1; i < series.buckets().size(); ++i) {
    CHECK(series.buckets()[i].first_step == series.buckets()[i - 1].last_step + 1);
  }
}

TEST_CASE("A step that comes again replaces what came after it") {
  Series series;
  for (const int step : {10, 20, 30, 40}) series.Add(step, step);
  series.Add(30, 3);
  REQUIRE(series.buckets().size() == 3);
  CHECK(series.buckets()[2].last == 3);
  CHECK(Total(series.buckets()).max == 20);
  series.ForgetFrom(20);
  REQUIRE(series.buckets().size() == 1);
  series.Add(-1, 5);
  CHECK(series.buckets().size() == 1);
}

TEST_CASE("Values that are not finite are counted and leave the others as they are") {
  Series series;
  series.Add(1, kNan);
  series.Add(1, 5);
  series.Add(2, kInf);
  series.Add(3, 1e301);
  series.Add(4, 7);
  const Bucket total = Total(series.buckets());
  CHECK(total.not_finite == 3);
  CHECK(total.count == 2);
  CHECK(total.min == 5);
  CHECK(total.max == 7);
  CHECK(total.first == 5);
  CHECK(total.mean() == 6);
}

TEST_CASE("A value is told with its step, also among those that are not finite") {
  Series series;
  series.Add(100, kNan);
  series.Add(200, 0.8);
  series.Add(300, 0.9);
  series.Add(400, kNan);
  CHECK_THAT(Description({.title = "t", .lines = {{.label = "run", .series = &series}}}),
             Contains("from 0.8 at step 200 to 0.9 at step 300, between"));
}

TEST_CASE("Columns keep the smallest and the largest value, and which came first") {
  Series series;
  for (int step = 0; step < 1000; ++step) series.Add(step, step == 501 ? 9 : step == 507 ? -9 : 0);
  const std::vector<Bucket> columns = Downsample(series.buckets(), 0, 999, 10);
  REQUIRE(columns.size() == 10);
  CHECK(columns[5].max == 9);
  CHECK(columns[5].min == -9);
  CHECK_FALSE(columns[5].min_first);
  CHECK(columns[5].count == 100);
  CHECK(columns[4].max == 0);
}

TEST_CASE("Ticks are round numbers around the values") {
  const Axis axis = NiceAxis(0.07, 2.31, 5);
  CHECK(axis.ticks == std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5});
  CHECK(axis.Position(1.25) == 0.5);
  CHECK(TickText(axis, 0.5) == "0.5");
  CHECK(NiceAxis(-3, 12, 5).ticks == std::vector<double>{-5, 0, 5, 10, 15});
  CHECK(NiceAxis(0, 3, 5, /*whole=*/true).ticks == std::vector<double>{0, 1, 2, 3});
  CHECK(NiceAxis(5, 60, 5, /*whole=*/true).ticks == std::vector<double>{0, 20, 40, 60});
}

TEST_CASE("Values that are all the same are in the middle of the axis") {
  for (const double value : {0.0, 1.0, -4.0, 1e-9, 1e299}) {
    const Axis axis = NiceAxis(value, value, 5);
    CHECK(axis.ticks.size() >= 2);
    CHECK(axis.ticks.size() <= 7);
    CHECK(axis.Position(value) > 0.2);
    CHECK(axis.Position(value) < 0.8);
  }
  CHECK(NiceAxis(0, 0, 5, /*whole=*/true).ticks == std::vector<double>{0, 1});
}

TEST_CASE("Large and small ticks are short") {
  const Axis steps = NiceAxis(0, 100000, 5), many = NiceAxis(0, 3e6, 5), rates = NiceAxis(0, 1e-4, 5);
  CHECK(TickText(steps, 20000) == "20k");
  CHECK(TickText(steps, 0) == "0");
  CHECK(TickText(many, 1e6) == "1M");
  CHECK(TickText(rates, 2e-05) == "2e-05");
  CHECK(TickText(NiceAxis(0, 1e12, 5), 2e11) == "2e+11");
  // Neighbours differ, however close they are.
  CHECK(TickText(NiceAxis(0.05300, 0.05316, 5), 0.05305) == "0.05305");
}

TEST_CASE("Text in HTML") {
  CHECK(Escape("<script>alert(\"1\" & '2')</script>") ==
        "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
  CHECK(Escape("naïve 日本 😀") == "naïve 日本 😀");
  CHECK(Escape(std::string("a\x1b[1m\0b\n", 8)) == "a\uFFFD[1m\uFFFDb\n");
  // Not UTF-8: a lone byte, a character cut off, one written longer than needed, a surrogate, one beyond Unicode.
  CHECK(Escape("\xff|\xe6\x97|\xc0\xbc|\xed\xa0\x80|\xf5\x80\x80\x80").find('<') == std::string::npos);
  CHECK(Escape("\xff") == "\uFFFD");
  CHECK(Escape("\u0085\u00A0\uFFFE") == "\uFFFD\u00A0\uFFFD");
  CHECK(Escape("\xe6\x97") == "\uFFFD\uFFFD");
  CHECK(Escape("\xc0\xbc") == "\uFFFD\uFFFD");
  CHECK(Escape("\xed\xa0\x80") == "\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("A graph draws a line through its values") {
  Series series;
  for (int step = 0; step <= 10; ++step) series.Add(step, step == 4 ? kNan : 1 + step % 2);
  const std::string svg = ChartSvg({.title = "a<b", .lines = {{.label = "run", .color = 9, .series = &series}}}, "g");
  // The axes go from 0 to 10 and from 1 to 2, in the rectangle from (40, 10) to (390, 202). Step 4 is missing.
  CHECK_THAT(svg, Contains("<title id=\"g-t\">a&lt;b</title>"));
  CHECK_THAT(svg, Contains("<g class=\"c1\"><path d=\"M40.0 202.0L75.0 10.0L110.0 202.0L145.0 10.0M215.0 10.0"));
  CHECK_THAT(svg, Contains("L390.0 202.0\"/>"));
  CHECK_THAT(svg, Contains("&#215;"));
  CHECK_THAT(svg, Contains("Values that are not finite: 1."));
}

TEST_CASE("The values of a graph as a table") {
  Series training, evaluation;
  for (int step = 1; step <= 3; ++step) training.Add(step, 0.5 * step);
  evaluation.Add(2, kNan);
  const std::string table = ChartTable(
      {.title = "t",
       .lines = {{.label = "a", .series = &training}, {.label = "b", .of_evaluation = true, .series = &evaluation}}});
  CHECK_THAT(table, Contains("<th scope=\"row\">1</th><td>0.5</td><td></td>"));
  CHECK_THAT(table, Contains("<th scope=\"row\">2</th><td>1</td><td>nan</td>"));
  CHECK_THAT(table, Contains("<th scope=\"row\">3</th><td>1.5</td><td></td>"));
}

TEST_CASE("Sparklines") {
  Series series;
  for (int step = 0; step < 8; ++step) series.Add(step, step);
  CHECK(Sparkline(series, 8) == "▁▂▃▄▅▆▇█");
  CHECK(Sparkline(series, 4) == "▁▃▆█");
  series.Add(8, kNan);
  CHECK(Sparkline(series, 9) == "▁▂▃▄▅▆▇█!");
}

}  // namespace
}  // namespace official::report
