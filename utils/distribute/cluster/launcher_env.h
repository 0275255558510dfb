// Launchers: what may have started this process as one of several, read from the environment that each of them sets.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/cluster/cluster_spec.h"
#include "utils/distribute/cluster/environment.h"

namespace official::distribute {

// A launcher, and the tasks that it started.
struct Launch {
  std::string launcher;  // "TF_CONFIG", "--workers", "torchrun", "mpirun", "Slurm"
  std::string alone;     // how to start a process that ignores it: "env -u TF_CONFIG PROGRAM ..."
  ClusterTask started;

  // Returns the number of processes that belong together: those of the cluster, and this one if it is not in there,
  // as an evaluator need not be.
  int NumProcesses() const;

  // Returns true if no address is known, but PMIx connects the processes: those of mpirun and srun --mpi=pmix.
  // ShareByPmix (pmix.h) then tells all that of worker 0, for which FreeAddress (free_address.h) finds one.
  bool AddressesByPmix() const;
};

// Returns what started this process; nothing if it is alone. `workers` is the value of --workers, "" if it is not
// given. In this order:
//   TF_CONFIG    as tf_config.h reads it; a cluster of one task counts, too
//   --workers    a list of addresses with ranges ("job-0-[0-3].job:2222"), and JOB_COMPLETION_INDEX, which Kubernetes
//                sets in the pods of an Indexed Job
//   torchrun     RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; without RANK its defaults PET_NNODES, PET_NODE_RANK,
//                PET_MASTER_ADDR, PET_MASTER_PORT, with which Kubeflow's TrainJob describes one process a node. They
//                tell the address of worker 0 only. Where torchrun itself listens there, which it says by
//                TORCHELASTIC_USE_AGENT_STORE=True, the port of worker 0 is the next one (65534 after 65535)
//   mpirun       PMIX_RANK and OMPI_COMM_WORLD_SIZE of Open MPI; they tell no addresses
//   Slurm        in a step, which srun starts, as slurm_step.h reads it: the address of worker 0, or with
//                srun --mpi=pmix none
// All but TF_CONFIG describe workers only, and say nothing if there is one. InvalidArgument, with the variable, its
// value and what to write, if a launcher's variables do not make a cluster, and with both values if two launchers
// describe different numbers of processes or another place of this one. A torchrun that srun started on each node is
// no disagreement, and in a process of mpirun the variables of Slurm, which describe its daemons, are not read.
absl::StatusOr<std::optional<Launch>> ReadLauncherEnv(const Environment& environment, absl::string_view workers);

// True for the name of a variable by which one of them, or the program that it starts, may tell a process its place.
bool IsOfLauncher(absl::string_view variable);

// Returns the line for the log: "cluster of TF_CONFIG: worker 0 at a:1 (chief), worker 1 at b:1 (this process)".
std::string Describe(const Launch& launch);

}  // namespace official::distribute
