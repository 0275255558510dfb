#include "official/report/overview.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/report/axis.h"
#include "official/report/graphs.h"
#include "official/report/html.h"

namespace official::report {
namespace {

const std::string* Find(const std::string& name, const NamedTexts& texts) {
  const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& text) { return text.first == name; });
  return found == texts.end() ? nullptr : &found->second;
}

// "0.9312 at step 600; from 0.1 to 0.94"
std::string LastValue(const Series& series) {
  const Bucket total = Total(series.buckets());
  if (total.count == 0) return "no finite value";
  std::string text = absl::StrCat(ValueText(total.last), " at step ", total.step_of_last);
  if (total.count > 1) {
    absl::StrAppend(&text, "; between ", ValueText(total.min), " and ", ValueText(total.max));
  }
  if (total.not_finite > 0) absl::StrAppend(&text, "; ", total.not_finite, " not finite");
  return text;
}

std::string Row(const std::string& name, const std::vector<std::string>& values) {
  if (std::all_of(values.begin(), values.end(), [](const std::string& value) { return value.empty(); })) return "";
  std::string row = absl::StrCat("<tr><th scope=\"row\">", Escape(name), "</th>");
  for (const std::string& value : values) absl::StrAppend(&row, "<td>", Escape(value), "</td>");
  return row + "</tr>\n";
}

}  // namespace

std::vector<std::string> NamesOf(const std::vector<const NamedTexts*>& lists) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const NamedTexts* list : lists) {
    for (const auto& [name, value] : *list) {
      if (seen.insert(name).second) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> ValuesOf(const std::string& name, const std::vector<const NamedTexts*>& lists) {
  std::vector<std::string> values;
  for (const NamedTexts* list : lists) {
    const std::string* const value = Find(name, *list);
    values.push_back(value == nullptr ? "" : *value);
  }
  return values;
}

bool Differ(const std::vector<std::string>& values) {
  return std::any_of(values.begin(), values.end(), [&](const std::string& value) { return value != values[0]; });
}

std::string TimeText(const Run& run) {
  if (!run.first_time) return "";
  const double seconds = *run.last_time - *run.first_time;
  if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
  const auto minutes = static_cast<int64_t>(seconds / 60);
  if (minutes < 120) return absl::StrFormat("%d min %d s", minutes, static_cast<int64_t>(seconds) % 60);
  return absl::StrFormat("%d h %d min", minutes / 60, minutes % 60);
}

std::string OverviewTable(const std::vector<Run>& runs) {
  std::string html = "<div class=\"wide\"><table class=\"overview\"><caption>Overview</caption>\n";
  if (runs.size() > 1) {
    html += "<thead><tr><th scope=\"col\">run</th>";
    for (const Run& run : runs) absl::StrAppend(&html, "<th scope=\"col\">", Escape(run.path), "</th>");
    html += "</tr></thead>\n";
  }
  html += "<tbody>\n";
  const auto add = [&](const std::string& name, const std::function<std::string(const Run&)>& value) {
    std::vector<std::string> values;
    for (const Run& run : runs) values.push_back(value(run));
    html += Row(name, values);
  };
  add("model", [](const Run& run) { return run.Fact("model"); });
  add("data", [](const Run& run) { return run.Fact("data"); });
  add("started", [](const Run& run) { return run.Fact("started"); });
  add("last step", [](const Run& run) { return absl::StrCat(run.last_step()); });
  add("time from first to last event", TimeText);
  // Evaluations say most; of trainings the loss.
  std::set<CurveKey> keys = {{"loss", Split::kTraining}, {"examples_per_sec", Split::kTraining}};
  for (const Run& run : runs) {
    for (const auto& [key, series] : run.curves) {
      if (key.second == Split::kEvaluation) keys.insert(key);
    }
  }
  for (const CurveKey& key : keys) {
    const std::string split = key.second == Split::kEvaluation ? ", evaluation" : ", training";
    add(key.first == "examples_per_sec" ? TitleOf(key.first) : TitleOf(key.first) + split, [&](const Run& run) {
      const auto curve = run.curves.find(key);
      return curve == run.curves.end() ? "" : LastValue(curve->second);
    });
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace official::report
