// The tasks that one srun of Slurm started, read from the variables that it sets for each.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "utils/distribute/cluster/environment.h"

namespace official::distribute {

struct SlurmStep {
  int num_tasks = 1;
  int rank = 0;         // of this process
  std::string address;  // of task 0; empty if PMIx connects the tasks, as srun --mpi=pmix makes it
};

// Returns the step that this process is a task of; nothing outside of a step, as in the shell of salloc and in a batch
// script, and nothing if the step has one task. Task 0 must lie on the first node, as srun places it unless told
// otherwise. Its port is the first of SLURM_STEP_RESV_PORTS, which srun --resv-ports sets; else one from 20000 to
// 31999 that follows from the numbers of job and step, so that 750 jobs in a row, with 16 steps each, have different
// ones on a node that they share. InvalidArgument for variables that are missing or wrong.
absl::StatusOr<std::optional<SlurmStep>> ReadSlurmStep(const Environment& environment);

}  // namespace official::distribute
