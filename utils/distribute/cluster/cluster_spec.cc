#include "utils/distribute/cluster/cluster_spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::distribute {
namespace {

constexpr int kMaxListed = 20;

std::string Describe(const ClusterSpec& cluster, const Task& task, const std::string& address, const Task& self) {
  std::vector<absl::string_view> notes;
  if (IsChief(cluster, task)) notes.push_back("chief");
  if (task == self) notes.push_back("this process");
  return absl::StrCat(NameOf(task), address.empty() ? "" : " at ", address,
                      notes.empty() ? "" : absl::StrCat(" (", absl::StrJoin(notes, ", "), ")"));
}

}  // namespace

int ClusterSpec::NumTasks(absl::string_view job) const {
  const auto found = jobs.find(std::string(job));
  return found == jobs.end() ? 0 : static_cast<int>(found->second.size());
}

int ClusterSpec::NumTasks() const {
  int tasks = 0;
  for (const auto& [job, addresses] : jobs) tasks += static_cast<int>(addresses.size());
  return tasks;
}

int ClusterSpec::NumWorkers() const { return NumTasks(kChief) + NumTasks(kMaster) + NumTasks(kWorker); }

bool IsChief(const ClusterSpec& cluster, const Task& task) { return WorkerIndex(cluster, task) == 0; }

std::optional<int> WorkerIndex(const ClusterSpec& cluster, const Task& task) {
  if (task.type == kChief || task.type == kMaster) return task.index;
  if (task.type != kWorker) return std::nullopt;
  return cluster.NumTasks(kChief) + cluster.NumTasks(kMaster) + task.index;
}

std::vector<std::string> WorkerAddresses(const ClusterSpec& cluster) {
  std::vector<std::string> all;
  for (const absl::string_view job : {kChief, kMaster, kWorker}) {
    const auto found = cluster.jobs.find(std::string(job));
    if (found != cluster.jobs.end()) all.insert(all.end(), found->second.begin(), found->second.end());
  }
  return all;
}

std::string NameOf(const Task& task) { return absl::StrCat(task.type, " ", task.index); }

std::string CountJobs(const ClusterSpec& cluster) {
  return absl::StrJoin(cluster.jobs, ", ", [](std::string* out, const auto& job) {
    absl::StrAppend(out, job.second.size(), " ", job.first);
  });
}

std::string ListTasks(const ClusterSpec& cluster, const Task& self) {
  std::vector<std::string> tasks;
  for (const auto& [job, addresses] : cluster.jobs) {
    const int count = static_cast<int>(addresses.size());
    for (int i = 0; i < std::min(count, kMaxListed); ++i) {
      tasks.push_back(Describe(cluster, {job, i}, addresses[i], self));
    }
    if (count <= kMaxListed) continue;
    tasks.push_back(absl::StrCat("... ", count - kMaxListed, " more"));
    if (job == self.type && self.index >= kMaxListed) {
      tasks.push_back(Describe(cluster, self, addresses[self.index], self));
    }
  }
  if (cluster.NumTasks(self.type) == 0) tasks.push_back(Describe(cluster, self, "", self));
  return absl::StrJoin(tasks, ", ");
}

}  // namespace official::distribute
