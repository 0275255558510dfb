#include "utils/distribute/cluster/slurm_step.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/cluster/hostlist.h"

namespace official::distribute {
namespace {

constexpr char kNodes[] = "SLURM_STEP_NODELIST";
constexpr char kTasksPerNode[] = "SLURM_STEP_TASKS_PER_NODE";
constexpr char kPorts[] = "SLURM_STEP_RESV_PORTS";
constexpr int kFirstPort = 8888;

struct Node {
  std::string name;
  int num_tasks = 1;
};

absl::StatusOr<std::vector<Node>> ReadNodes(const Environment& environment, int num_tasks) {
  ASSIGN_OR_RETURN(const std::string list, ReadText(environment, kNodes));
  const absl::StatusOr<std::vector<std::string>> names = ExpandHostlist(list);
  if (!names.ok()) return VariableError(kNodes, absl::StrCat("is wrong: ", names.status().message()));
  std::vector<int> counts(names->size(), 1);
  if (IsSet(environment, kTasksPerNode)) {
    absl::StatusOr<std::vector<int>> given = ExpandTasksPerNode(environment(kTasksPerNode));
    if (!given.ok()) return VariableError(kTasksPerNode, absl::StrCat("is wrong: ", given.status().message()));
    counts = *std::move(given);
  }
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (counts.size() != names->size() || sum != num_tasks) {
    return VariableError(
        kNodes, absl::StrCat("has ", names->size(), " nodes, and ", kTasksPerNode, " ", sum, " tasks on ",
                             counts.size(), " nodes, but the step has ", num_tasks, " tasks; start all with one srun"));
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < counts.size(); ++i) nodes.push_back({(*names)[i], counts[i]});
  return nodes;
}

// The port of the task at a place of its node.
absl::StatusOr<std::vector<int>> ReadPorts(const Environment& environment, int most_tasks) {
  std::vector<int> ports(most_tasks);
  std::iota(ports.begin(), ports.end(), kFirstPort);
  if (!IsSet(environment, kPorts)) return ports;
  const absl::StatusOr<std::vector<std::string>> reserved = ExpandHostlist(absl::StrCat("[", environment(kPorts), "]"));
  if (!reserved.ok()) return VariableError(kPorts, absl::StrCat("is wrong: ", reserved.status().message()));
  if (static_cast<int>(reserved->size()) < most_tasks) {
    return VariableError(kPorts, absl::StrCat("has ", reserved->size(), " ports, but a node has ", most_tasks,
                                              " tasks; reserve more with srun --resv-ports=", most_tasks));
  }
  for (int i = 0; i < most_tasks; ++i) {
    if (!absl::SimpleAtoi((*reserved)[i], &ports[i])) return VariableError(kPorts, "has other things than numbers");
  }
  return ports;
}

// Tasks that do not lie in blocks would be looked for on nodes of others.
absl::Status CheckPlacement(const Environment& environment, const std::vector<Node>& nodes, int rank) {
  if (!IsSet(environment, "SLURM_NODEID")) return absl::OkStatus();
  const int last_node = static_cast<int>(nodes.size()) - 1;
  ASSIGN_OR_RETURN(const int node, ReadNumber(environment, "SLURM_NODEID", 0, last_node));
  int expected = 0;
  for (int tasks = nodes[0].num_tasks; tasks <= rank; tasks += nodes[++expected].num_tasks) {
  }
  if (node == expected) return absl::OkStatus();
  return VariableError("SLURM_NODEID", absl::StrCat("is ", node, ", but with tasks in blocks task ", rank,
                                                    " is on node ", expected, "; use srun --distribution=block"));
}

}  // namespace

absl::StatusOr<std::optional<SlurmStep>> ReadSlurmStep(const Environment& environment) {
  if (!IsSet(environment, "SLURM_STEP_ID") || !IsSet(environment, "SLURM_PROCID")) return std::nullopt;
  const char* const size_name = IsSet(environment, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!IsSet(environment, size_name)) return std::nullopt;
  ASSIGN_OR_RETURN(const int num_tasks, ReadNumber(environment, size_name, 1, kMaxProcesses));
  if (num_tasks == 1) return std::nullopt;
  ASSIGN_OR_RETURN(const int rank, ReadNumber(environment, "SLURM_PROCID", 0, num_tasks - 1));
  ASSIGN_OR_RETURN(const std::vector<Node> nodes, ReadNodes(environment, num_tasks));
  RETURN_IF_ERROR(CheckPlacement(environment, nodes, rank));
  int most_tasks = 0;
  for (const Node& node : nodes) most_tasks = std::max(most_tasks, node.num_tasks);
  ASSIGN_OR_RETURN(const std::vector<int> ports, ReadPorts(environment, most_tasks));
  SlurmStep step = {.addresses = {}, .rank = rank};
  std::vector<PlacedAddress> placed;
  for (const Node& node : nodes) {
    for (int i = 0; i < node.num_tasks; ++i) {
      step.addresses.push_back(absl::StrCat(node.name, ":", ports[i]));
      placed.push_back({kNodes, step.addresses.back()});
    }
  }
  RETURN_IF_ERROR(CheckAddresses(placed));
  return step;
}

}  // namespace official::distribute
