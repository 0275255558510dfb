// The tasks of a cluster and their roles, as TensorFlow's multi_worker_util and Estimator see them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace official::distribute {

// The jobs that a cluster can have, as TensorFlow names them. "master" is an older name of "chief".
inline constexpr absl::string_view kChief = "chief", kMaster = "master", kWorker = "worker", kPs = "ps",
                                   kEvaluator = "evaluator";

// One process of a cluster: the job that it does, and its place in that job, from 0.
struct Task {
  std::string type;
  int index = 0;

  bool operator==(const Task&) const = default;
};

// The addresses ("host:port") of each job's tasks, by their index. An address is empty if what started the tasks tells
// only their number. The evaluator may be missing: it is no one's peer.
struct ClusterSpec {
  std::map<std::string, std::vector<std::string>> jobs;

  // Returns the number of tasks of a job, 0 if the cluster does not have it.
  int NumTasks(absl::string_view job) const;
  // Returns the number of tasks of all jobs.
  int NumTasks() const;
  // Returns the number of tasks that train: the chief, or the master, and the workers.
  int NumWorkers() const;
};

// A cluster, and the task of it that this process is.
struct ClusterTask {
  ClusterSpec cluster{};
  Task task{};
};

// Returns true for the task that saves and decides: the chief, the master, or worker 0 where there is neither.
bool IsChief(const ClusterSpec& cluster, const Task& task);

// Returns the place of a task among those that train: 0 for the chief, 1 for worker 0 beside a chief. Nothing for
// parameter servers and the evaluator.
std::optional<int> WorkerIndex(const ClusterSpec& cluster, const Task& task);

// Returns the addresses of the tasks that train, by their place among them.
std::vector<std::string> WorkerAddresses(const ClusterSpec& cluster);

// Returns "worker 1".
std::string NameOf(const Task& task);

// Returns the number of tasks by job: "1 chief, 2 worker".
std::string CountJobs(const ClusterSpec& cluster);

// Returns all tasks with their addresses, the first 20 of each job: "chief 0 at a:1 (chief), worker 0 at b:1 (this
// process)".
std::string ListTasks(const ClusterSpec& cluster, const Task& self);

}  // namespace official::distribute
