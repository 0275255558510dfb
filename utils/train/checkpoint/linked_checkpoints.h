// A directory of chosen checkpoints of a run, such as the best ones. Its files are hard links to those of model_dir, so
// that they take no space while model_dir has them, too; where the file system has no links they are copies. It has a
// state file of its own: whatever reads a model_dir reads it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace official::train {

// Returns the steps whose checkpoints the directory has; none if there is no directory.
absl::StatusOr<std::set<int64_t>> LinkedSteps(const std::string& directory);

// Makes the checkpoints of `steps`, at least one, those of the directory, the last one its latest: takes the one of
// `present` from model_dir, which has it, and removes others. The rest must be in the directory. Only one process at a
// time may do so. A process that is killed leaves, at every moment, a state file whose latest checkpoint is complete,
// the old or the new one, unless `present` replaces one of the same step that is another; the same call, made again,
// then finishes what it left. Errors: those of the file system.
absl::Status LinkCheckpoints(const std::string& model_dir, const std::string& directory,
                             const std::vector<int64_t>& steps, int64_t present);

}  // namespace official::train
