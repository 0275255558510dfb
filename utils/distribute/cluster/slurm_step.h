// The tasks that one srun of Slurm started, read from the variables that it sets for each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/distribute/cluster/environment.h"

namespace official::distribute {

struct SlurmStep {
  std::vector<std::string> addresses;  // of the tasks, by rank
  int rank = 0;                        // of this process
};

// Returns the step that this process is a task of; nothing outside of a step, as in the shell of salloc and in a batch
// script, and nothing if the step has one task. The tasks must lie on the nodes in blocks, as srun places them unless
// told otherwise. Their ports on a node are those of SLURM_STEP_RESV_PORTS, which srun --resv-ports sets, else 8888,
// 8889 and so on, as TensorFlow's SlurmClusterResolver gives them. InvalidArgument for variables that contradict each
// other.
absl::StatusOr<std::optional<SlurmStep>> ReadSlurmStep(const Environment& environment);

}  // namespace official::distribute
