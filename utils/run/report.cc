#include "utils/run/report.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "utils/compute/core/check.h"
#include "utils/logs/events.h"

namespace official::run {
namespace {

// The number with a float's fewest digits, if it is a float: 0.9892, not 0.9891999959945679.
double Shortest(double value) {
  const auto narrow = static_cast<float>(value);
  double shortest = value;
  if (static_cast<double>(narrow) == value && absl::SimpleAtod(logs::FormatFloat(narrow), &shortest)) return shortest;
  return value;
}

}  // namespace

void PrintEvaluation(bool json, const train::EvalResults& results, std::ostream& out) {
  logs::Json::Object object;
  if (json) object.emplace_back("event", "evaluation");
  for (const auto& [name, value] : results) {
    if (name == "global_step") {
      object.emplace_back(name, static_cast<int64_t>(value));
    } else {
      object.emplace_back(name, json ? value : Shortest(value));
    }
  }
  if (json) {
    out << logs::DumpJson(object) << std::endl;
  } else {
    out << "\nEvaluation results:\n\t" << logs::PythonRepr(object) << "\n" << std::endl;
  }
}

void PrintEnd(bool json, absl::string_view status, int64_t global_step, const logs::Json::Object& throughput,
              std::ostream& out) {
  if (!json) return;
  logs::Json::Object object = {{"event", "end"}, {"status", std::string(status)}, {"global_step", global_step}};
  object.insert(object.end(), throughput.begin(), throughput.end());
  out << logs::DumpJson(object) << std::endl;
}

double MetricOf(absl::Span<const std::pair<std::string, double>> results, absl::string_view name) {
  const auto it = std::find_if(results.begin(), results.end(), [&](const auto& r) { return r.first == name; });
  OFFICIAL_CHECK(it != results.end()) << name;
  return it->second;
}

}  // namespace official::run
