#include "utils/distribute/cluster/launcher_env.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/cluster/hostlist.h"
#include "utils/distribute/cluster/slurm_step.h"
#include "utils/distribute/cluster/tf_config.h"

namespace official::distribute {
namespace {

constexpr char kTorchrun[] = "torchrun", kSlurm[] = "Slurm";

using MaybeTask = absl::StatusOr<std::optional<ClusterTask>>;

ClusterTask WorkerOf(std::vector<std::string> addresses, int index) {
  const std::string worker(kWorker);
  return {.cluster = {.jobs = {{worker, std::move(addresses)}}}, .task = {worker, index}};
}

MaybeTask ReadTfConfig(const Environment& environment, absl::string_view) {
  const char* const text = environment("TF_CONFIG");
  if (text == nullptr) return std::nullopt;
  return ParseTfConfig(text);
}

MaybeTask ReadWorkersFlag(const Environment& environment, absl::string_view workers) {
  if (workers.empty()) return std::nullopt;
  absl::StatusOr<std::vector<std::string>> addresses = ExpandHostlist(workers);
  if (!addresses.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("flag --workers: ", addresses.status().message()));
  }
  std::vector<PlacedAddress> placed;
  for (const std::string& address : *addresses) {
    placed.push_back({absl::StrCat("flag --workers, worker ", placed.size()), address});
  }
  RETURN_IF_ERROR(CheckAddresses(placed));
  const int num_workers = static_cast<int>(addresses->size());
  ASSIGN_OR_RETURN(const int index, ReadNumber(environment, "JOB_COMPLETION_INDEX", 0, num_workers - 1));
  if (num_workers == 1) return std::nullopt;
  return WorkerOf(*std::move(addresses), index);
}

// The variables of torchrun for each process, and those with its arguments for each node.
struct RendezvousVariables {
  const char* rank;
  const char* size;
  const char* host;
  const char* port;
};
constexpr RendezvousVariables kOfProcess = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
constexpr RendezvousVariables kOfNode = {"PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT"};

// The port at which worker 0 can listen: that of the variables, or one beside it if torchrun's agent, which keeps a
// TCPStore for PyTorch's processes, listens there. PyTorch, too, compares with the one word "True".
int PortOfWorker0(const Environment& environment, int port) {
  const char* const agent_listens = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (agent_listens == nullptr || absl::string_view(agent_listens) != "True") return port;
  return port == kMaxPort ? port - 1 : port + 1;
}

MaybeTask ReadTorchrun(const Environment& environment, absl::string_view) {
  const bool of_node = !IsSet(environment, kOfProcess.rank) && IsSet(environment, kOfNode.size);
  const RendezvousVariables& names = of_node ? kOfNode : kOfProcess;
  if (!IsSet(environment, names.size)) return std::nullopt;
  ASSIGN_OR_RETURN(const int size, ReadNumber(environment, names.size, 1, kMaxProcesses));
  if (size == 1) return std::nullopt;
  if (!IsSet(environment, names.rank)) {
    return VariableError(names.size, absl::StrCat("is ", size, ", but ", names.rank, " is not set; it needs the ",
                                                  "number of this process, from 0 to ", size - 1));
  }
  ASSIGN_OR_RETURN(const int rank, ReadNumber(environment, names.rank, 0, size - 1));
  ASSIGN_OR_RETURN(const std::string host, ReadText(environment, names.host));
  ASSIGN_OR_RETURN(const int port, ReadNumber(environment, names.port, 1, kMaxPort));
  std::vector<std::string> addresses(size);
  addresses[0] = absl::StrCat(host, ":", PortOfWorker0(environment, port));
  RETURN_IF_ERROR(CheckAddresses({{absl::StrCat(names.host, ":", names.port), addresses[0]}}));
  return WorkerOf(std::move(addresses), rank);
}

// mpirun starts its daemons with srun where there is Slurm: its processes are no tasks of that step.
bool StartedByMpirun(const Environment& environment) {
  return IsSet(environment, "PMIX_RANK") && IsSet(environment, "OMPI_COMM_WORLD_SIZE");
}

MaybeTask ReadMpirun(const Environment& environment, absl::string_view) {
  if (StartedByMpirun(environment)) {
    ASSIGN_OR_RETURN(const int size, ReadNumber(environment, "OMPI_COMM_WORLD_SIZE", 1, kMaxProcesses));
    ASSIGN_OR_RETURN(const int rank, ReadNumber(environment, "PMIX_RANK", 0, size - 1));
    if (size == 1) return std::nullopt;
    return WorkerOf(std::vector<std::string>(size), rank);
  }
  // srun --mpi=pmix sets the rank, too, and Slurm's variables have the rest.
  if (!IsSet(environment, "PMIX_RANK") || IsSet(environment, "SLURM_STEP_ID")) return std::nullopt;
  ASSIGN_OR_RETURN(const int rank, ReadNumber(environment, "PMIX_RANK", 0, kMaxProcesses - 1));
  if (rank == 0) return std::nullopt;
  return VariableError("PMIX_RANK", absl::StrCat("is ", rank, ", so that this is one of several processes, but ",
                                                 "OMPI_COMM_WORLD_SIZE does not say of how many; use mpirun"));
}

MaybeTask ReadSlurm(const Environment& environment, absl::string_view) {
  if (StartedByMpirun(environment)) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<SlurmStep> step, ReadSlurmStep(environment));
  if (!step) return std::nullopt;
  std::vector<std::string> addresses(step->num_tasks);
  addresses[0] = std::move(step->address);
  return WorkerOf(std::move(addresses), step->rank);
}

struct Reader {
  const char* launcher;
  const char* alone;
  MaybeTask (*read)(const Environment& environment, absl::string_view workers);
};
constexpr Reader kReaders[] = {
    {"TF_CONFIG", "env -u TF_CONFIG PROGRAM ...", ReadTfConfig},
    {"--workers", "PROGRAM ... without --workers", ReadWorkersFlag},
    {kTorchrun, "env -u RANK -u WORLD_SIZE -u PET_NNODES PROGRAM ...", ReadTorchrun},
    {"mpirun", "env -u PMIX_RANK -u SLURM_STEP_ID PROGRAM ...", ReadMpirun},
    {kSlurm, "env -u PMIX_RANK -u SLURM_STEP_ID PROGRAM ...", ReadSlurm},
};

// "worker 1 of 4 processes"
std::string PlaceOf(const Launch& launch) {
  return absl::StrCat(NameOf(launch.started.task), " of ", launch.NumProcesses(), " processes");
}

// True if `outer` is a step of Slurm that started the torchruns, of which one started this process.
bool StartedTorchruns(const Environment& environment, const Launch& outer) {
  int num_torchruns = 0;
  return outer.launcher == kSlurm && IsSet(environment, "GROUP_WORLD_SIZE") &&
         absl::SimpleAtoi(environment("GROUP_WORLD_SIZE"), &num_torchruns) && num_torchruns == outer.NumProcesses();
}

absl::Status CheckAgree(const Launch& taken, const Launch& other) {
  const std::optional<int> index = WorkerIndex(taken.started.cluster, taken.started.task);
  const std::optional<int> other_index = WorkerIndex(other.started.cluster, other.started.task);
  const bool same_place = !index || !other_index || index == other_index;
  if (taken.NumProcesses() == other.NumProcesses() && same_place) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(taken.launcher, " says that this is ", PlaceOf(taken), ", but ",
                                                 other.launcher, " that it is ", PlaceOf(other),
                                                 "; use only one of them: ", other.alone, " or ", taken.alone));
}

absl::StatusOr<std::optional<Launch>> Read(const Reader& reader, const Environment& environment,
                                           absl::string_view workers) {
  MaybeTask started = reader.read(environment, workers);
  if (!started.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(started.status().message(), "; to train without ", reader.launcher, ": ", reader.alone));
  }
  if (!started->has_value()) return std::nullopt;
  return Launch{.launcher = reader.launcher, .alone = reader.alone, .started = **std::move(started)};
}

}  // namespace

int Launch::NumProcesses() const {
  return started.cluster.NumTasks() + (started.cluster.NumTasks(started.task.type) == 0 ? 1 : 0);
}

bool Launch::AddressesByPmix() const {
  const auto workers = started.cluster.jobs.find(std::string(kWorker));
  return workers != started.cluster.jobs.end() && !workers->second.empty() && workers->second.front().empty();
}

absl::StatusOr<std::optional<Launch>> ReadLauncherEnv(const Environment& environment, absl::string_view workers) {
  std::optional<Launch> taken;
  for (const Reader& reader : kReaders) {
    ASSIGN_OR_RETURN(std::optional<Launch> launch, Read(reader, environment, workers));
    if (!launch) continue;
    if (!taken) {
      taken = std::move(launch);
    } else if (taken->launcher != kTorchrun || !StartedTorchruns(environment, *launch)) {
      RETURN_IF_ERROR(CheckAgree(*taken, *launch));
    }
  }
  return taken;
}

bool IsOfLauncher(absl::string_view variable) {
  constexpr absl::string_view kNames[] = {"TF_CONFIG",   "JOB_COMPLETION_INDEX", "RANK",       "WORLD_SIZE",
                                          "MASTER_ADDR", "MASTER_PORT",          "GROUP_RANK", "GROUP_WORLD_SIZE",
                                          "LOCAL_RANK",  "LOCAL_WORLD_SIZE"};
  constexpr absl::string_view kPrefixes[] = {"PET_", "TORCHELASTIC_", "PMIX_", "PMI_", "OMPI_", "SLURM_"};
  return std::find(std::begin(kNames), std::end(kNames), variable) != std::end(kNames) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(variable, prefix); });
}

std::string Describe(const Launch& launch) {
  return absl::StrCat("cluster of ", launch.launcher, ": ", ListTasks(launch.started.cluster, launch.started.task));
}

}  // namespace official::distribute
