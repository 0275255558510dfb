#include "official/report/time_bars.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/report/chart.h"
#include "official/report/html.h"

namespace official::report {
namespace {

constexpr double kWidth = 400, kHeight = 28;
constexpr int kMaxParts = kNumColors - 1;  // ops of a bar; the others are its last part

bool IsSum(const OpTime& op) { return absl::StartsWith(op.op, "AllReduce"); }

std::string NameOf(const OpTime& op) {
  if (op.op == "DataWait") return "waits for data";
  return IsSum(op) ? absl::StrCat(op.op, " (sums over devices)") : op.op;
}

// The ops of the bar: waits and sums first, then those that take the most time, then all others as one.
std::vector<OpTime> PartsOf(std::vector<OpTime> ops) {
  std::stable_partition(ops.begin(), ops.end(), [](const OpTime& op) { return op.op == "DataWait" || IsSum(op); });
  if (ops.size() <= kMaxParts) return ops;
  OpTime others = {.op = "all other ops"};
  for (auto op = ops.begin() + kMaxParts; op != ops.end(); ++op) {
    others.us += op->us;
    others.count += op->count;
    others.flops += op->flops;
    others.bytes += op->bytes;
  }
  ops.resize(kMaxParts);
  ops.push_back(others);
  return ops;
}

std::string Rate(double amount, double us) {
  return amount > 0 && us > 0 ? absl::StrFormat("%.1f", 1e-3 * amount / us) : "";
}

std::string BarOf(const Run& run, size_t number) {
  const std::vector<OpTime> parts = PartsOf(run.op_times);
  double all = 0;
  for (const OpTime& part : parts) all += part.us;
  if (!(all > 0)) return "";
  std::string rects, rows, description;
  double x = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const OpTime& part = parts[i];
    const double width = part.us / all * kWidth, percent = 100 * part.us / all;
    absl::StrAppendFormat(&rects, "<rect class=\"c%d\" x=\"%.2f\" width=\"%.2f\" height=\"%g\"/>",
                          static_cast<int>(i) % kNumColors, x, width, kHeight);
    x += width;
    absl::StrAppendFormat(&description, "%s%s %.1f%%", i == 0 ? "" : ", ", NameOf(part), percent);
    absl::StrAppendFormat(
        &rows,
        "<tr><th scope=\"row\"><svg class=\"swatch c%d\" viewBox=\"0 0 24 8\" aria-hidden=\"true\">"
        "<rect width=\"24\" height=\"8\"/></svg>%s</th><td>%.1f%%</td><td>%.3f</td><td>%d</td><td>%s</td>"
        "<td>%s</td></tr>\n",
        static_cast<int>(i) % kNumColors, Escape(NameOf(part)), percent, 1e-3 * part.us, part.count,
        Rate(part.flops, part.us), Rate(part.bytes, part.us));
  }
  return absl::StrFormat(
      "<figure>\n<figcaption>%s, %s</figcaption>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" aria-labelledby=\"time%d-t "
      "time%d-d\">\n<title id=\"time%d-t\">time by op</title>\n<desc id=\"time%d-d\">%s</desc>\n%s</svg>\n"
      "<div class=\"wide\"><table class=\"ops\"><thead><tr><th scope=\"col\">op</th><th scope=\"col\">share</th>"
      "<th scope=\"col\">ms</th><th scope=\"col\">calls</th><th scope=\"col\">GFLOP/s</th><th scope=\"col\">GB/s</th>"
      "</tr></thead>\n<tbody>\n%s</tbody></table></div>\n</figure>\n",
      Escape(run.path), Escape(run.trace_file), kWidth, kHeight, number, number, number, number, Escape(description),
      rects, rows);
}

}  // namespace

std::string TimeBars(const std::vector<Run>& runs) {
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i) html += BarOf(runs[i], i + 1);
  return html.empty() ? "" : absl::StrCat("<div class=\"graphs\">\n", html, "</div>\n");
}

}  // namespace official::report
