#include "official/report/summary.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "official/report/axis.h"
#include "official/report/graphs.h"
#include "official/report/overview.h"
#include "utils/flags/console.h"
#include "utils/logs/output_style.h"
#include "utils/misc/text.h"

namespace official::report {
namespace {

constexpr int kNumBars = 8;
constexpr int kMaxSparkline = 40;
constexpr int kMinColumns = 40;

std::string Bar(int height) { return {'\xE2', '\x96', static_cast<char>(0x81 + height)}; }  // U+2581 and on

// "mnist on MNIST-synthetic, 60 steps, 2.3 s from first to last event, 2 cores, AMD EPYC": a run that was resumed or
// evaluated later has time between its events in which it did not train.
std::string Headline(const Run& run) {
  std::vector<std::string> parts;
  const std::string model = run.Fact("model"), data = run.Fact("data");
  if (!model.empty()) parts.push_back(data.empty() ? model : absl::StrCat(model, " on ", data));
  const std::string time = TimeText(run);
  parts.push_back(absl::StrCat(run.last_step(), " steps"));
  if (!time.empty()) parts.push_back(absl::StrCat(time, " from first to last event"));
  if (const std::string processor = run.Fact("processor"); !processor.empty()) parts.push_back(processor);
  return misc::Printable(absl::StrJoin(parts, ", "));
}

std::string Name(const CurveKey& key) {
  return misc::Printable(absl::StrCat(TitleOf(key.first), key.second == Split::kEvaluation ? " (evaluation)" : ""));
}

std::string Cut(const std::string& text, int columns) {
  return text.size() <= static_cast<size_t>(columns) ? text : text.substr(0, columns - 3) + "...";
}

logs::Json JsonOf(const CurveKey& key, const Series& series) {
  const Bucket total = Total(series.buckets());
  const auto value = [&](auto number) { return total.count == 0 ? logs::Json() : logs::Json(number); };
  return logs::Json::Object{{"name", key.first},
                            {"split", key.second == Split::kEvaluation ? "evaluation" : "training"},
                            {"first_step", value(total.step_of_first)},
                            {"last_step", value(total.step_of_last)},
                            {"first", value(total.first)},
                            {"last", value(total.last)},
                            {"min", value(total.min)},
                            {"max", value(total.max)},
                            {"count", total.count},
                            {"not_finite", total.not_finite}};
}

// An object for each example: its texts by the names of their columns.
logs::Json::Array JsonOf(const Samples& samples) {
  logs::Json::Array examples;
  for (const std::vector<std::string>& row : samples.rows) {
    logs::Json::Object example;
    for (size_t i = 0; i < row.size(); ++i) example.emplace_back(samples.columns[i], row[i]);
    examples.emplace_back(std::move(example));
  }
  return examples;
}

}  // namespace

std::string Sparkline(const Series& series, int width) {
  const Bucket total = Total(series.buckets());
  const std::vector<Bucket> columns = Downsample(series.buckets(), total.first_step, total.last_step, width);
  double min = 0, max = 0;
  bool any = false;
  for (const Bucket& column : columns) {
    if (column.count == 0) continue;
    min = any ? std::min(min, column.mean()) : column.mean();
    max = any ? std::max(max, column.mean()) : column.mean();
    any = true;
  }
  std::string line;
  for (const Bucket& column : columns) {
    if (column.count == 0) {
      line += "!";
    } else {
      const double height = max > min ? (column.mean() - min) / (max - min) : 0.5;  // all the same: halfway
      line += Bar(std::min(kNumBars - 1, static_cast<int>(height * kNumBars)));
    }
  }
  return line;
}

void PrintSummary(const Run& run, const TextStyle& style, std::ostream& out) {
  const int columns = std::max(kMinColumns, style.columns);
  const std::string bold = style.color ? "\x1b[1m" : "", cyan = style.color ? "\x1b[36m" : "",
                    plain = style.color ? "\x1b[0m" : "";
  out << bold << Cut(misc::Printable(run.path), columns) << plain << "\n" << Cut(Headline(run), columns) << "\n";
  size_t name_width = 0;
  for (const auto& [key, series] : run.curves) name_width = std::max(name_width, Name(key).size());
  constexpr int kValues = 24;  // "-1.234e-05 -> -1.234e-05"
  const int names = std::min(static_cast<int>(name_width), std::max(8, columns - kValues - 14));
  const int width = std::clamp(columns - names - kValues - 6, 4, kMaxSparkline);
  for (const CurveKey& key : SortedKeys(run)) {
    const Series& series = run.curves.at(key);
    const Bucket total = Total(series.buckets());
    std::string values = ValueText(total.last);
    if (total.count == 0) {
      values = "nan";
    } else if (total.count > 1) {
      values = absl::StrCat(ValueText(total.first), " -> ", values);
    }
    const int drawn = static_cast<int>(Downsample(series.buckets(), total.first_step, total.last_step, width).size());
    out << absl::StrFormat("  %-*s  ", names, Cut(Name(key), names)) << cyan << Sparkline(series, width) << plain
        << std::string(width - drawn + 2, ' ') << values << "\n";
  }
}

void PrintJsonSummary(const Run& run, std::ostream& out) {
  logs::Json::Object facts;
  for (const auto& [name, text] : run.facts) facts.emplace_back(name, text);
  logs::Json::Array curves, notes(run.notes.begin(), run.notes.end());
  for (const CurveKey& key : SortedKeys(run)) curves.push_back(JsonOf(key, run.curves.at(key)));
  flags::PrintJson({{"event", "run"},
                    {"path", run.path},
                    {"facts", std::move(facts)},
                    {"last_step", run.last_step()},
                    {"seconds", run.first_time ? logs::Json(*run.last_time - *run.first_time) : logs::Json()},
                    {"curves", std::move(curves)},
                    {"samples", JsonOf(run.samples)},
                    {"notes", std::move(notes)}},
                   out);
}

TextStyle StyleOfStandardOutput() {
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  TextStyle style;
  const char* const columns = std::getenv("COLUMNS");
  int number = 0;
  if (columns != nullptr && absl::SimpleAtoi(columns, &number) && number > 0) style.columns = number;
  winsize size = {};
  if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.columns = size.ws_col;
  style.color =
      logs::ResolveOutputStyle(logs::LogFormat::kSimple, logs::ColorMode::kAuto, is_terminal, std::getenv).color;
  return style;
}

}  // namespace official::report
