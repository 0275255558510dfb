#include "utils/train/evaluations/evaluation_history.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::train {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;

std::string PathIn(const std::string& model_dir) { return files::JoinPath(model_dir, kEvaluationHistoryFile); }

bool IsEscaped(char c) { return c == '%' || c == '\x7f' || (c >= 0 && c <= ' '); }

std::string Escape(absl::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (IsEscaped(c)) {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// A percent sign that Escape has not written, as files of earlier versions have it, is itself.
std::string Unescape(absl::string_view escaped) {
  std::string name;
  for (size_t i = 0; i < escaped.size(); ++i) {
    int code;
    if (escaped[i] == '%' && i + 2 < escaped.size() && absl::SimpleHexAtoi(escaped.substr(i + 1, 2), &code) &&
        IsEscaped(static_cast<char>(code))) {
      name += static_cast<char>(code);
      i += 2;
    } else {
      name += escaped[i];
    }
  }
  return name;
}

// One line; false if it is none of ours.
bool ParseLine(absl::string_view line, std::map<int64_t, std::map<std::string, double>>& results) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
  int64_t step;
  if (!absl::SimpleAtoi(fields[0], &step) || step < 0) return false;
  std::map<std::string, double>& metrics = results[step];
  for (size_t i = 1; i < fields.size(); ++i) {
    const size_t equal = fields[i].rfind('=');
    if (equal == fields[i].npos ||
        !absl::SimpleAtod(fields[i].substr(equal + 1), &metrics[Unescape(fields[i].substr(0, equal))])) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<EvaluationHistory> EvaluationHistory::Read(const std::string& model_dir) {
  EvaluationHistory history;
  const std::string path = PathIn(model_dir);
  if (!files::Exists(path)) return history;
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(path, kMaxBytes));
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  // The last one is what follows the last line feed: nothing.
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool is_last = i + 1 == lines.size();
    if (is_last ? lines[i].empty() : ParseLine(lines[i], history.results_)) continue;
    return absl::DataLossError(
        absl::StrCat(path, ": line ", i + 1, " is damaged; remove the file, and evaluations count from here on"));
  }
  return history;
}

absl::Status EvaluationHistory::Write(const std::string& model_dir) const {
  std::string text;
  for (const auto& [step, metrics] : results_) {
    absl::StrAppend(&text, step);
    for (const auto& [name, value] : metrics) absl::StrAppendFormat(&text, " %s=%.17g", Escape(name), value);
    text += '\n';
  }
  const std::string path = PathIn(model_dir);
  RETURN_IF_ERROR(files::MakeDirectories(files::DirectoryOf(path)));
  return files::WriteFileAtomically(path, text);
}

absl::Status EvaluationHistory::Remove(const std::string& model_dir) { return files::RemoveFile(PathIn(model_dir)); }

void EvaluationHistory::ForgetAfter(int64_t step) { results_.erase(results_.upper_bound(step), results_.end()); }

void EvaluationHistory::Add(int64_t step, absl::Span<const std::pair<std::string, double>> results) {
  results_.erase(results_.lower_bound(step), results_.end());
  std::map<std::string, double>& metrics = results_[step];
  for (const auto& [name, value] : results) {
    if (name != "global_step") metrics[name] = value;
  }
}

double EvaluationHistory::ValueOf(int64_t step, const std::string& metric) const {
  const auto at = results_.find(step);
  if (at == results_.end() || at->second.count(metric) == 0) return std::numeric_limits<double>::quiet_NaN();
  return at->second.at(metric);
}

std::vector<int64_t> EvaluationHistory::Best(const std::set<int64_t>& steps, const MetricRule& rule) const {
  std::vector<int64_t> order(steps.rbegin(), steps.rend());
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return rule.IsBetter(ValueOf(b, rule.metric), ValueOf(a, rule.metric));
  });
  const auto surplus = std::max<int64_t>(0, static_cast<int64_t>(order.size()) - rule.number);
  order.erase(order.begin(), order.begin() + surplus);
  return order;
}

std::optional<EvaluationHistory::BestSoFar> EvaluationHistory::BestOf(const MetricRule& rule) const {
  std::optional<BestSoFar> best;
  for (const auto& [step, metrics] : results_) {
    const auto found = metrics.find(rule.metric);
    if (found == metrics.end()) continue;
    if (!best || rule.IsBetter(found->second, best->value)) {
      best = {step, found->second, 0};
    } else {
      ++best->evaluations_since;
    }
  }
  return best;
}

}  // namespace official::train
