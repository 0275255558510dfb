#include "utils/distribute/cluster/tf_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/cluster/strict_json.h"
#include "utils/misc/text.h"

namespace official::distribute {
namespace {

using nlohmann::json;

constexpr char kExample[] = R"({"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}})";
// The keys that we read, and those that TensorFlow, Kubeflow and Vertex AI know.
constexpr absl::string_view kKeys[] = {"cluster",   "task",           "environment",         "job",    "model_dir",
                                       "rpc_layer", "session_master", "eval_session_master", "service"};
constexpr absl::string_view kTaskKeys[] = {"type", "index", "trial", "cloud"};
constexpr absl::string_view kJobs[] = {kChief, kWorker, kPs, kEvaluator, kMaster};

using Names = absl::Span<const absl::string_view>;

absl::Status Refused(absl::string_view what) { return absl::InvalidArgumentError(what); }

// The JSON of a value in one short line, for messages.
std::string Shown(const json& value) { return misc::Shorten(value.dump(-1, ' ', /*ensure_ascii=*/true)); }

absl::Status Refused(absl::string_view path, const json& value, absl::string_view what_to_write) {
  return Refused(absl::StrCat(path, " is ", Shown(value), "; write ", what_to_write));
}

bool Contains(Names names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string DidYouMean(absl::string_view name, Names known) {
  const std::vector<std::string> nearest = misc::NearestNames(name, {known.begin(), known.end()});
  return nearest.empty() ? "" : absl::StrCat("; did you mean \"", absl::StrJoin(nearest, "\" or \""), "\"?");
}

// Keys that nobody knows are the cluster manager's own, but one that is almost known is misspelt.
absl::Status CheckKeys(const json& object, absl::string_view path, Names known) {
  for (const auto& [key, value] : object.items()) {
    if (Contains(known, key)) continue;
    const std::string meant = DidYouMean(key, known);
    if (!meant.empty()) return Refused(absl::StrCat("the key ", JsonPath(path, key), " is unknown", meant));
  }
  return absl::OkStatus();
}

// The addresses of a job that is an object {"0": address, ...} as a list.
absl::StatusOr<json> AsList(const json& tasks, const std::string& path) {
  json list = json::array();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto found = tasks.find(absl::StrCat(i));
    if (found == tasks.end()) {
      return Refused(absl::StrCat(path, " has ", tasks.size(), " tasks, but none with the key \"", i,
                                  "\"; number them from \"0\", or write a list"));
    }
    list.push_back(*found);
  }
  return list;
}

absl::StatusOr<std::vector<std::string>> ReadJob(const json& job, const std::string& path) {
  if (!job.is_array() && !job.is_object()) return Refused(path, job, "a list of addresses, [\"host:port\", ...]");
  if (job.empty()) return Refused(path, job, "the addresses of its tasks, or leave the job out");
  json list = job;
  if (job.is_object()) {
    ASSIGN_OR_RETURN(list, AsList(job, path));
  }
  std::vector<std::string> addresses;
  for (const json& address : list) {
    if (!address.is_string()) {
      return Refused(absl::StrCat(path, "[", addresses.size(), "]"), address, "an address, \"host:port\"");
    }
    addresses.push_back(address.get<std::string>());
  }
  return addresses;
}

absl::Status CheckAllAddresses(const ClusterSpec& cluster) {
  std::vector<PlacedAddress> placed;
  for (const auto& [job, addresses] : cluster.jobs) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      placed.push_back({absl::StrCat("cluster.", job, "[", i, "]"), addresses[i]});
    }
  }
  return CheckAddresses(placed);
}

// The rules for which jobs there are.
absl::Status CheckRoles(const ClusterSpec& cluster) {
  for (const absl::string_view job : {kChief, kMaster, kEvaluator}) {
    if (const int tasks = cluster.NumTasks(job); tasks > 1) {
      return Refused(absl::StrCat("cluster.", job, " has ", tasks, " tasks; write one",
                                  job == kEvaluator ? "" : ", and the others under \"worker\""));
    }
  }
  if (cluster.NumTasks(kChief) > 0 && cluster.NumTasks(kMaster) > 0) {
    return Refused(
        "cluster has a \"chief\" and a \"master\", which is an older name of the same; write one of them, and the "
        "other task under \"worker\"");
  }
  if (cluster.NumWorkers() == 0) {
    return Refused(absl::StrCat("cluster has ", CountJobs(cluster),
                                ", but nobody who trains; write the tasks that train under \"worker\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterSpec> ReadCluster(const json& cluster) {
  if (!cluster.is_object()) return Refused("cluster", cluster, "an object, {\"worker\": [\"host:port\", ...]}");
  ClusterSpec spec;
  for (const auto& [job, tasks] : cluster.items()) {
    const std::string path = JsonPath("cluster", job);
    if (!Contains(kJobs, job)) {
      const std::string meant = DidYouMean(job, kJobs);
      return Refused(absl::StrCat("the job ", path, " is unknown",
                                  meant.empty() ? absl::StrCat("; write one of ", absl::StrJoin(kJobs, ", ")) : meant));
    }
    ASSIGN_OR_RETURN(spec.jobs[job], ReadJob(tasks, path));
  }
  RETURN_IF_ERROR(CheckAllAddresses(spec));
  RETURN_IF_ERROR(CheckRoles(spec));
  return spec;
}

// The index of the task, which is the place of one of `num_tasks`. TensorFlow takes the text of a number, too.
absl::StatusOr<int> ReadIndex(const json& task, absl::string_view type, int num_tasks) {
  const std::string wanted = num_tasks == 1 ? "0, the only one" : absl::StrCat("a number from 0 to ", num_tasks - 1);
  if (!task.contains("index")) return Refused(absl::StrCat("task.index is missing; write ", wanted));
  const json& value = task["index"];
  const std::string text = value.is_string() ? value.get<std::string>() : value.is_number_integer() ? value.dump() : "";
  int index = -1;
  if (!absl::SimpleAtoi(text, &index) || index < 0 || index >= num_tasks) {
    return Refused("task.index", value, absl::StrCat("that of this ", type, ", ", wanted));
  }
  return index;
}

absl::StatusOr<std::string> ReadType(const json& task) {
  if (!task.contains("type")) return Refused("task.type is missing; write the job of this process, such as \"worker\"");
  const json& type = task["type"];
  if (!type.is_string() || !Contains(kJobs, type.get<std::string>())) {
    const std::string meant = type.is_string() ? DidYouMean(type.get<std::string>(), kJobs) : "";
    return Refused(absl::StrCat("task.type is ", Shown(type),
                                meant.empty() ? absl::StrCat("; write one of ", absl::StrJoin(kJobs, ", ")) : meant));
  }
  return type.get<std::string>();
}

// `cluster` has no job if there is none: the task can then be worker 0 only.
absl::StatusOr<Task> ReadTask(const json& task, const ClusterSpec& cluster) {
  if (!task.is_object()) return Refused("task", task, R"(an object, {"type": "worker", "index": 0})");
  RETURN_IF_ERROR(CheckKeys(task, "task", kTaskKeys));
  ASSIGN_OR_RETURN(const std::string type, ReadType(task));
  int num_tasks = cluster.NumTasks(type);
  if (type == kEvaluator && cluster.NumTasks(kMaster) > 0) {
    return Refused(
        "task.type is \"evaluator\", but in a cluster with a \"master\" that one evaluates; write \"chief\" "
        "instead of \"master\"");
  }
  if (type == kEvaluator || (cluster.jobs.empty() && type == kWorker)) num_tasks = 1;
  if (num_tasks == 0) {
    return Refused(absl::StrCat("task.type is \"", type, "\", but cluster has ",
                                cluster.jobs.empty() ? "no jobs" : CountJobs(cluster),
                                "; write the task's job in both"));
  }
  ASSIGN_OR_RETURN(const int index, ReadIndex(task, type, num_tasks));
  return Task{type, index};
}

// The keys of TensorFlow's RunConfig that are none of the cluster.
absl::Status CheckRunConfig(const json& config) {
  const json service = config.value("service", json()), model_dir = config.value("model_dir", json());
  if (!service.is_null() && !service.is_object()) {
    return Refused(absl::StrCat("If \"service\" is set in TF_CONFIG, it must be a dict. Given ", Shown(service),
                                "; leave it out"));
  }
  if (model_dir.is_null() || (model_dir.is_string() && !model_dir.get<std::string>().empty())) return absl::OkStatus();
  return Refused("model_dir", model_dir, "a directory, or leave it out");
}

absl::StatusOr<std::optional<ClusterTask>> ReadConfig(const json& config) {
  RETURN_IF_ERROR(CheckKeys(config, "", kKeys));
  RETURN_IF_ERROR(CheckRunConfig(config));
  if (config.contains("sparseCluster")) {
    return Refused(
        "the key sparseCluster describes workers that come and go; write \"cluster\", with all tasks "
        "(in a TFJob of Kubeflow: enableDynamicWorker: false)");
  }
  ClusterSpec cluster;
  const json described = config.value("cluster", json());
  if (!described.is_null() && described != json::object()) {
    ASSIGN_OR_RETURN(cluster, ReadCluster(described));
  }
  const bool has_task = config.contains("task");
  if (cluster.jobs.empty() && (!has_task || config["task"].empty())) return std::nullopt;
  if (!has_task) return Refused(R"(task is missing; write which one this is: "task": {"type": "worker", "index": 0})");
  ASSIGN_OR_RETURN(Task task, ReadTask(config["task"], cluster));
  if (cluster.jobs.empty()) {
    if (task.type == kWorker) return std::nullopt;
    return Refused("task.type is \"evaluator\", but there is no cluster; write \"cluster\", too");
  }
  return ClusterTask{std::move(cluster), std::move(task)};
}

absl::StatusOr<std::optional<ClusterTask>> Parse(absl::string_view text) {
  if (text.empty()) return std::nullopt;
  if (absl::StripAsciiWhitespace(text).empty()) {
    return Refused(absl::StrCat("it is empty; write ", kExample));
  }
  ASSIGN_OR_RETURN(const json config, ParseStrictJson(text));
  if (!config.is_object()) return Refused(absl::StrCat("it is ", Shown(config), "; write ", kExample));
  return ReadConfig(config);
}

}  // namespace

absl::StatusOr<std::optional<ClusterTask>> ParseTfConfig(absl::string_view text) {
  absl::StatusOr<std::optional<ClusterTask>> parsed = Parse(text);
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(absl::StrCat("TF_CONFIG: ", parsed.status().message()));
}

absl::StatusOr<std::string> ModelDirOfTfConfig(absl::string_view text) {
  RETURN_IF_ERROR(ParseTfConfig(text).status());
  if (text.empty()) return "";
  ASSIGN_OR_RETURN(const json config, ParseStrictJson(text));
  const json model_dir = config.value("model_dir", json());
  return model_dir.is_null() ? "" : model_dir.get<std::string>();
}

std::string TfConfigOf(const ClusterTask& task) {
  return json({{"cluster", task.cluster.jobs}, {"task", {{"type", task.task.type}, {"index", task.task.index}}}})
      .dump();
}

absl::StatusOr<ClusterSpec> ParseCluster(absl::string_view text) {
  ASSIGN_OR_RETURN(const json cluster, ParseStrictJson(text));
  return ReadCluster(cluster);
}

}  // namespace official::distribute
