#include "official/report/run.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "official/report/event_files.h"
#include "official/report/metric_log.h"
#include "official/report/python_json.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/misc/run_files.h"

namespace official::report {
namespace {

constexpr int64_t kMaxTextBytes = 1 << 20;  // of flags.txt and benchmark_run.log, which have a few kilobytes

absl::Status CheckIsDirectory(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return absl::NotFoundError(absl::StrCat("there is no directory ", path, "; name the --model_dir of a run"));
  }
  if (!std::filesystem::is_directory(status)) {
    return absl::NotFoundError(
        absl::StrCat(path, " is not a directory; name the --model_dir of a run, such as ", files::DirectoryOf(path)));
  }
  return absl::OkStatus();
}

// Reads the event files of a directory; those of a run that was resumed have names in the order of their times.
absl::Status ReadEventFiles(const std::string& directory, const std::vector<std::string>& names, Split split, Run& run,
                            int& num_files) {
  std::vector<std::string> paths;
  int64_t bytes = 0;
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "events.out.tfevents.")) continue;
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(paths.emplace_back(files::JoinPath(directory, name)), error);
    bytes += error ? 0 : static_cast<int64_t>(size);  // what cannot be read is told below
  }
  logs::TaskProgress progress({.title = absl::StrCat("reading ", directory), .total = bytes, .unit = "B"});
  for (const std::string& path : paths) {
    ++num_files;
    RETURN_IF_ERROR(ReadEventFile(path, split, run, progress));
  }
  return absl::OkStatus();
}

NamedTexts FlagsOf(const std::string& text) {
  NamedTexts flags;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "--")) continue;
    const std::pair<std::string, std::string> parts = absl::StrSplit(line.substr(2), absl::MaxSplits('=', 1));
    flags.push_back(parts);
  }
  return flags;
}

// The text of a field that is a string, a number or a boolean, or "".
std::string TextOf(const nlohmann::json& json, const std::string& pointer) {
  const nlohmann::json::json_pointer at(pointer);
  if (!json.contains(at)) return "";
  const nlohmann::json& field = json[at];
  if (field.is_string()) return field.get<std::string>();
  return field.is_number() || field.is_boolean() ? field.dump() : "";
}

// "2026-11-25 23:07:27 UTC" for "2026-11-25T23:07:27.953458Z".
std::string TimeWithoutFraction(std::string time) {
  const size_t point = time.find('.'), t = time.find('T');
  if (point == std::string::npos || t == std::string::npos || !absl::EndsWith(time, "Z")) return time;
  time[t] = ' ';
  return time.substr(0, point) + " UTC";
}

// What benchmark_run.log says, in words.
NamedTexts FactsOf(const nlohmann::json& record) {
  NamedTexts facts;
  const auto add = [&](const std::string& name, const std::string& text) {
    if (!text.empty()) facts.emplace_back(name, text);
  };
  add("model", TextOf(record, "/model_name"));
  add("data", TextOf(record, "/dataset/name"));
  add("test id", TextOf(record, "/test_id"));
  add("started", TimeWithoutFraction(TextOf(record, "/run_date")));
  add("processor", TextOf(record, "/machine_config/cpu_info/cpu_info"));
  add("cores", TextOf(record, "/machine_config/cpu_info/num_cores"));
  const std::string gpus = TextOf(record, "/machine_config/gpu_info/count");
  const std::string gpu_model = TextOf(record, "/machine_config/gpu_info/model");
  add("GPUs", gpu_model.empty() ? gpus : absl::StrCat(gpus, " x ", gpu_model));
  const nlohmann::json::json_pointer memory("/machine_config/memory_total");
  if (record.contains(memory) && record[memory].is_number()) {
    add("memory", absl::StrFormat("%.1f GiB", record[memory].get<double>() / (1 << 30)));
  }
  add("version", TextOf(record, "/tensorflow_version/version"));
  add("commit", TextOf(record, "/tensorflow_version/git_hash"));
  const auto parameters = record.find("run_parameters");
  if (parameters == record.end() || !parameters->is_array()) return facts;
  for (const nlohmann::json& parameter : *parameters) {
    std::string value;
    for (const char* field : {"/string_value", "/bool_value", "/long_value", "/float_value"}) {
      if (parameter.is_object() && value.empty()) value = TextOf(parameter, field);
    }
    if (parameter.is_object()) add(absl::StrCat("parameter ", TextOf(parameter, "/name")), value);
  }
  return facts;
}

// The content of a file of a run that may be missing; a note if it is there and cannot be read.
std::optional<std::string> ReadText(const std::string& path, Run& run) {
  if (!files::Exists(path)) return std::nullopt;
  absl::StatusOr<std::string> text = files::ReadFile(path, kMaxTextBytes);
  if (text.ok()) return *std::move(text);
  run.notes.emplace_back(text.status().message());
  return std::nullopt;
}

}  // namespace

void AddValue(const CurveKey& key, int64_t step, double value, Curves& curves) {
  auto curve = curves.find(key);
  if (curve == curves.end()) {
    if (curves.size() >= kMaxCurves || step < 0) return;
    curve = curves.emplace(key, Series()).first;
  }
  curve->second.Add(step, value);
}

std::string Run::Fact(const std::string& name) const {
  const auto fact = std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return f.first == name; });
  return fact == facts.end() ? "" : fact->second;
}

int64_t Run::last_step() const {
  int64_t last = 0;
  for (const auto& [key, series] : curves) {
    if (!series.empty()) last = std::max(last, series.buckets().back().last_step);
  }
  return last;
}

absl::StatusOr<Run> ReadRun(const std::string& path) {
  RETURN_IF_ERROR(CheckIsDirectory(path));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(path));
  Run run = {.path = path};
  int num_files = 0;
  RETURN_IF_ERROR(ReadEventFiles(path, names, Split::kTraining, run, num_files));
  const std::string eval = files::JoinPath(path, "eval");
  std::error_code error;
  if (std::filesystem::is_directory(eval, error)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> eval_names, files::ListDirectory(eval));
    RETURN_IF_ERROR(ReadEventFiles(eval, eval_names, Split::kEvaluation, run, num_files));
  }
  const std::string metric_log = files::JoinPath(path, misc::kMetricLog);
  if (files::Exists(metric_log)) {
    ++num_files;
    Curves logged;
    RETURN_IF_ERROR(ReadMetricLog(metric_log, logged, run.notes));
    // Where both have a curve, the event files have more of its values.
    run.curves.merge(logged);
  }
  if (num_files == 0) {
    return absl::NotFoundError(absl::StrCat(path,
                                            " has no event files and no metric.log; name the --model_dir of a "
                                            "run that has made its first steps"));
  }
  for (auto curve = run.curves.begin(); curve != run.curves.end();) {
    curve = curve->second.empty() ? run.curves.erase(curve) : std::next(curve);
  }
  if (run.curves.empty() && !run.notes.empty()) return absl::DataLossError(run.notes.front());
  if (const std::string trace = LatestTrace(names); !trace.empty()) {
    absl::StatusOr<std::vector<OpTime>> ops = ReadTrace(files::JoinPath(path, trace));
    if (ops.ok()) {
      run.trace_file = trace;
      run.op_times = *std::move(ops);
    } else {
      run.notes.emplace_back(ops.status().message());
    }
  }
  if (const auto text = ReadText(files::JoinPath(path, misc::kFlagsFile), run)) run.flags = FlagsOf(*text);
  if (const auto text = ReadText(files::JoinPath(path, misc::kRunLog), run)) {
    const nlohmann::json record = ParsePythonJson(*text);
    if (record.is_object()) {
      run.facts = FactsOf(record);
    } else {
      run.notes.push_back(absl::StrCat(path, "/benchmark_run.log is not a JSON object"));
    }
  }
  return run;
}

}  // namespace official::report
