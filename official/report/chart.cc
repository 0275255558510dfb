#include "official/report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/report/axis.h"
#include "official/report/html.h"

namespace official::report {
namespace {

// In units of the picture, which is as wide as a phone, so that its letters can be read there.
constexpr double kWidth = 400, kHeight = 240;
constexpr double kMinLeft = 40, kRight = 10, kTop = 10, kBottom = 38;
constexpr double kLetter = 7;  // the width of a digit of a tick
constexpr int kColumns = static_cast<int>(kWidth - kMinLeft - kRight);
constexpr size_t kMaxDots = 50;
constexpr int kTableRows = 12;

struct Scale {
  Axis steps, values;
  int64_t first_step = 0, last_step = 0;
  double left = kMinLeft;  // of the graph; the texts of the values are before it

  double x(double step) const { return left + steps.Position(step) * (kWidth - left - kRight); }
  double y(double value) const { return kHeight - kBottom - values.Position(value) * (kHeight - kTop - kBottom); }
};

Scale ScaleOf(const Chart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Scale scale;
  scale.first_step = std::numeric_limits<int64_t>::max();
  double min = kInfinity, max = -kInfinity;
  for (const Line& line : chart.lines) {
    const Bucket total = Total(line.series->buckets());
    scale.first_step = std::min(scale.first_step, total.first_step);
    scale.last_step = std::max(scale.last_step, total.last_step);
    if (total.count == 0) continue;
    min = std::min(min, total.min);
    max = std::max(max, total.max);
  }
  if (min > max) min = 0, max = 1;
  scale.values = NiceAxis(min, max, 5);
  for (const double tick : scale.values.ticks) {
    const auto letters = static_cast<double>(TickText(scale.values, tick).size());
    scale.left = std::max(scale.left, 12 + kLetter * letters);
  }
  scale.steps =
      NiceAxis(static_cast<double>(scale.first_step), static_cast<double>(scale.last_step), 5, /*whole=*/true);
  return scale;
}

std::string AxesSvg(const Scale& scale) {
  std::string svg = "<g class=\"grid\">";
  for (const double tick : scale.values.ticks) {
    absl::StrAppendFormat(&svg, "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>", scale.left, kWidth - kRight,
                          scale.y(tick), scale.y(tick));
  }
  svg += "</g>\n<g class=\"ticks\">";
  for (const double tick : scale.values.ticks) {
    absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>", scale.left - 6,
                          scale.y(tick) + 4, TickText(scale.values, tick));
  }
  for (const double tick : scale.steps.ticks) {
    const bool is_last = tick == scale.steps.ticks.back();
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"%s\">%s</text>",
                          is_last ? kWidth - 2 : scale.x(tick), kHeight - kBottom + 17, is_last ? "end" : "middle",
                          TickText(scale.steps, tick));
  }
  absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">step</text></g>\n",
                        (scale.left + kWidth - kRight) / 2, kHeight - 5);
  return svg;
}

// A path through the first, the smallest, the largest and the last value of each column. Columns without a finite value
// interrupt it.
std::string PathOf(const std::vector<Bucket>& columns, const Scale& scale) {
  std::string path;
  bool is_new = true;
  for (const Bucket& column : columns) {
    if (column.count == 0) {
      is_new = true;
      continue;
    }
    const double x = scale.x((static_cast<double>(column.first_step) + static_cast<double>(column.last_step)) / 2);
    std::vector<double> values = {column.first};
    for (const double value :
         {column.min_first ? column.min : column.max, column.min_first ? column.max : column.min, column.last}) {
      if (value != values.back()) values.push_back(value);
    }
    for (const double value : values) {
      absl::StrAppendFormat(&path, "%s%.1f %.1f", is_new ? "M" : "L", x, scale.y(value));
      is_new = false;
    }
  }
  return path;
}

std::string LineSvg(const Line& line, const Scale& scale) {
  const std::vector<Bucket> columns = Downsample(line.series->buckets(), scale.first_step, scale.last_step, kColumns);
  std::string svg = absl::StrFormat("<g class=\"c%d%s\">", line.color % kNumColors, line.of_evaluation ? " eval" : "");
  const std::string path = PathOf(columns, scale);
  if (!path.empty()) absl::StrAppend(&svg, "<path d=\"", path, "\"/>");
  // A path of one point would not be seen.
  if (line.of_evaluation ? columns.size() <= kMaxDots : columns.size() == 1) {
    for (const Bucket& column : columns) {
      if (column.count == 0) continue;
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                            scale.x(static_cast<double>(column.step_of_last)), scale.y(column.last));
    }
  }
  // Steps whose value is not a number are marked at the bottom.
  for (const Bucket& column : columns) {
    if (column.not_finite == 0) continue;
    absl::StrAppendFormat(&svg, "<text class=\"nan\" x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">&#215;</text>",
                          scale.x(static_cast<double>(column.first_step)), kHeight - kBottom - 2);
  }
  return svg + "</g>\n";
}

// The last bucket that ends after step `after` and not after step `last`, or null.
const Bucket* LastBetween(const Series& series, double after, double last) {
  const Bucket* found = nullptr;
  for (const Bucket& bucket : series.buckets()) {
    const auto step = static_cast<double>(bucket.last_step);
    if (step > last) break;
    if (step > after) found = &bucket;
  }
  return found;
}

}  // namespace

std::string ChartSvg(const Chart& chart, const std::string& id) {
  const Scale scale = ScaleOf(chart);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" aria-labelledby=\"%s-t %s-d\">\n"
      "<title id=\"%s-t\">%s</title>\n<desc id=\"%s-d\">%s</desc>\n",
      kWidth, kHeight, id, id, id, Escape(chart.title), id, Escape(Description(chart)));
  svg += AxesSvg(scale);
  for (const Line& line : chart.lines) svg += LineSvg(line, scale);
  return svg + "</svg>\n";
}

std::string Description(const Chart& chart) {
  std::string text = absl::StrCat(chart.title, " over steps.");
  for (const Line& line : chart.lines) {
    const Bucket total = Total(line.series->buckets());
    absl::StrAppend(&text, " ", line.label, ": ");
    if (total.count == 0) {
      absl::StrAppend(&text, "no finite value.");
      continue;
    }
    if (total.count == 1) {
      absl::StrAppend(&text, ValueText(total.last), " at step ", total.step_of_last, ".");
    } else {
      absl::StrAppend(&text, "from ", ValueText(total.first), " at step ", total.step_of_first, " to ",
                      ValueText(total.last), " at step ", total.step_of_last, ", between ", ValueText(total.min),
                      " and ", ValueText(total.max), ".");
    }
    if (total.not_finite > 0) absl::StrAppend(&text, " Values that are not finite: ", total.not_finite, ".");
  }
  return text;
}

std::string ChartTable(const Chart& chart) {
  const Scale scale = ScaleOf(chart);
  std::string table = "<div class=\"wide\"><table><thead><tr><th scope=\"col\">up to step</th>";
  for (const Line& line : chart.lines) absl::StrAppend(&table, "<th scope=\"col\">", Escape(line.label), "</th>");
  table += "</tr></thead>\n<tbody>\n";
  const int64_t num_steps = scale.last_step - scale.first_step;
  const auto rows = static_cast<int>(std::min<int64_t>(kTableRows, num_steps + 1));
  double step_before = -1;
  for (int row = 0; row < rows; ++row) {
    const double share = rows == 1 ? 0 : static_cast<double>(row) / (rows - 1);
    const double step = static_cast<double>(scale.first_step) + std::floor(share * static_cast<double>(num_steps));
    absl::StrAppendFormat(&table, "<tr><th scope=\"row\">%.0f</th>", step);
    for (const Line& line : chart.lines) {
      const Bucket* const last = LastBetween(*line.series, step_before, step);
      absl::StrAppend(&table, "<td>", last == nullptr ? "" : last->count == 0 ? "nan" : ValueText(last->last), "</td>");
    }
    step_before = step;
    table += "</tr>\n";
  }
  return table + "</tbody></table></div>\n";
}

}  // namespace official::report
