#include "official/report/graphs.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace official::report {
namespace {

const std::map<std::string, std::string>& Titles() {
  static const auto* const titles = new std::map<std::string, std::string>{
      {"learning_rate", "learning rate"},
      {"steps_per_sec", "steps per second"},
      {"current_examples_per_sec", "examples per second"},
      {"examples_per_sec", "examples per second, whole run"},
      {"data_wait_fraction", "share of the time that steps wait for data"},
  };
  return *titles;
}

// The place of a graph, by a name and whether any evaluation has it.
int PlaceOf(const std::string& name, bool is_evaluated) {
  if (name == "loss") return 0;
  if (is_evaluated) return 1;
  if (name == "learning_rate") return 3;
  if (name == "steps_per_sec" || name == "current_examples_per_sec") return 4;
  if (name == "data_wait_fraction") return 5;
  return name == "examples_per_sec" ? 6 : 2;
}

}  // namespace

std::string TitleOf(const std::string& name) {
  const auto title = Titles().find(name);
  return title == Titles().end() ? name : title->second;
}

std::vector<CurveKey> SortedKeys(const Run& run) {
  std::vector<std::pair<int, CurveKey>> order;
  for (const auto& [key, series] : run.curves) {
    const bool is_evaluated = run.curves.count({key.first, Split::kEvaluation}) > 0;
    order.emplace_back(PlaceOf(key.first, is_evaluated), key);
  }
  std::sort(order.begin(), order.end());
  std::vector<CurveKey> keys;
  for (const auto& [place, key] : order) keys.push_back(key);
  return keys;
}

std::vector<Chart> ChartsOf(const std::vector<Run>& runs) {
  std::map<std::string, Chart> charts;
  std::map<std::string, int> places;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [key, series] : runs[i].curves) {
      const auto& [name, split] = key;
      if (name == "examples_per_sec") continue;  // one value, at the end
      const bool of_evaluation = split == Split::kEvaluation;
      Chart& chart = charts[name];
      chart.title = TitleOf(name);
      const std::string kind = of_evaluation ? "evaluation" : "training";
      chart.lines.push_back({.label = runs.size() == 1 ? kind : absl::StrCat(runs[i].path, ", ", kind),
                             .color = static_cast<int>(i),
                             .of_evaluation = of_evaluation,
                             .series = &series});
      const int place = PlaceOf(name, of_evaluation);
      places[name] = places.count(name) > 0 ? std::min(places[name], place) : place;
    }
  }
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [name, place] : places) order.emplace_back(place, name);
  std::sort(order.begin(), order.end());
  std::vector<Chart> sorted;
  for (const auto& [place, name] : order) sorted.push_back(std::move(charts[name]));
  return sorted;
}

}  // namespace official::report
