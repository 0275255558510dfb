#include "utils/misc/tf_config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace official::misc {
namespace {

using nlohmann::json;

constexpr size_t kMaxShown = 100;

absl::Status Refused(absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("the environment variable TF_CONFIG ", absl::StrReplaceAll(found, {{"\n", " "}, {"\r", " "}}),
                   ", but runs of several machines are not supported. To train on this machine alone, unset it: env -u "
                   "TF_CONFIG PROGRAM ..."));
}

// "worker 1", or "" if the value does not tell.
std::string TaskOf(const json& config) {
  const json task = config.value("task", json::object());
  if (!task.is_object() || !task.contains("type") || !task["type"].is_string()) return "";
  const std::string index = task.contains("index") ? task["index"].dump() : "0";
  return absl::StrCat(task["type"].get<std::string>(), " ", index);
}

}  // namespace

absl::Status CheckTfConfig(const char* tf_config) {
  const absl::string_view text = absl::StripAsciiWhitespace(tf_config == nullptr ? "" : tf_config);
  if (text.empty()) return absl::OkStatus();
  const json config = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const json cluster = config.is_object() ? config.value("cluster", json::object()) : json();
  if (!cluster.is_object() && !(config.is_object() && cluster.is_null())) {
    const bool whole = text.size() <= kMaxShown;
    return Refused(absl::StrCat("is '", text.substr(0, kMaxShown), whole ? "" : "...",
                                "', which is not JSON such as {\"cluster\": {\"worker\": [\"host:port\"]}}"));
  }
  size_t tasks = 0;
  std::vector<std::string> jobs;
  for (const auto& [job, addresses] : cluster.items()) {
    const size_t count = addresses.is_string() ? 1 : addresses.size();
    tasks += count;
    if (count > 0) jobs.push_back(absl::StrCat(count, " ", job));
  }
  const bool serves = cluster.is_object() && cluster.contains("ps") && !cluster["ps"].empty();
  if (tasks == 0 || (tasks == 1 && !serves)) return absl::OkStatus();
  const std::string task = TaskOf(config);
  return Refused(absl::StrCat("describes a cluster of ", tasks, tasks == 1 ? " task (" : " tasks (",
                              absl::StrJoin(jobs, ", "), ")",
                              task.empty() ? "" : absl::StrCat(", of which this is ", task)));
}

}  // namespace official::misc
