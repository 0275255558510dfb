#include "utils/distribute/cluster/slurm_step.h"

#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/cluster/hostlist.h"
#include "utils/misc/text.h"

namespace official::distribute {
namespace {

constexpr char kJob[] = "SLURM_JOB_ID", kStep[] = "SLURM_STEP_ID", kTask[] = "SLURM_PROCID";
constexpr char kNodes[] = "SLURM_STEP_NODELIST", kNode[] = "SLURM_NODEID";
constexpr char kPorts[] = "SLURM_STEP_RESV_PORTS";
constexpr uint64_t kStepsWithOwnPort = 16;

// Slurm's numbers of jobs and steps have 32 bits.
absl::StatusOr<uint64_t> ReadId(const Environment& environment, const char* name) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(environment, name));
  uint32_t id = 0;
  if (absl::SimpleAtoi(text, &id)) return uint64_t{id};
  return VariableError(name, absl::StrCat("is '", misc::Printable(text), "'; it needs a number"));
}

// The first word of a list in the variable, which stands between `open` and `close`.
absl::StatusOr<std::string> ReadFirst(const Environment& environment, const char* name, absl::string_view open = "",
                                      absl::string_view close = "") {
  ASSIGN_OR_RETURN(const std::string list, ReadText(environment, name));
  const absl::StatusOr<std::vector<std::string>> words = ExpandHostlist(absl::StrCat(open, list, close));
  if (!words.ok()) return VariableError(name, absl::StrCat("is wrong: ", words.status().message()));
  return words->front();
}

absl::StatusOr<std::string> ReadPort(const Environment& environment) {
  if (IsSet(environment, kPorts)) return ReadFirst(environment, kPorts, "[", "]");
  ASSIGN_OR_RETURN(const uint64_t job, ReadId(environment, kJob));
  ASSIGN_OR_RETURN(const uint64_t step, ReadId(environment, kStep));
  return absl::StrCat(kFirstRunPort + (job * kStepsWithOwnPort + step) % kNumRunPorts);
}

// The address of task 0. Only that task knows its node: on another than the first the others would not find it.
absl::StatusOr<std::string> ReadAddress(const Environment& environment, int rank) {
  if (rank == 0 && IsSet(environment, kNode) && absl::string_view(environment(kNode)) != "0") {
    return VariableError(kNode, absl::StrCat("is '", misc::Printable(environment(kNode)), "', but task 0 must be on ",
                                             "the first node, 0; use srun --distribution=block"));
  }
  ASSIGN_OR_RETURN(const std::string node, ReadFirst(environment, kNodes));
  ASSIGN_OR_RETURN(const std::string port, ReadPort(environment));
  const std::string address = absl::StrCat(node, ":", port);
  RETURN_IF_ERROR(CheckAddresses({{IsSet(environment, kPorts) ? kPorts : kNodes, address}}));
  return address;
}

// A step within a step of srun --mpi=pmix inherits the other variables of PMIx, but is in no namespace of its own.
bool HasPmix(const Environment& environment) {
  return IsSet(environment, "PMIX_NAMESPACE") && IsSet(environment, kJob) &&
         environment("PMIX_NAMESPACE") == absl::StrCat("slurm.pmix.", environment(kJob), ".", environment(kStep));
}

}  // namespace

absl::StatusOr<std::optional<SlurmStep>> ReadSlurmStep(const Environment& environment) {
  if (!IsSet(environment, kStep) || !IsSet(environment, kTask)) return std::nullopt;
  const char* const size_name = IsSet(environment, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!IsSet(environment, size_name)) return std::nullopt;
  SlurmStep step;
  ASSIGN_OR_RETURN(step.num_tasks, ReadNumber(environment, size_name, 1, kMaxProcesses));
  if (step.num_tasks == 1) return std::nullopt;
  ASSIGN_OR_RETURN(step.rank, ReadNumber(environment, kTask, 0, step.num_tasks - 1));
  if (HasPmix(environment)) return step;
  ASSIGN_OR_RETURN(step.address, ReadAddress(environment, step.rank));
  return step;
}

}  // namespace official::distribute
