// The names of checkpoints and the state file, for those who write a directory of checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/protos/bundle.pb.h"

namespace official::train {

// Returns the step of "model.ckpt-<step>"; nothing for other names, among them those of a step with leading zeros.
std::optional<int64_t> StepOf(absl::string_view name);

std::string BaseName(const std::string& path);

// Returns the steps that have an index in the directory.
absl::StatusOr<std::set<int64_t>> StepsInDirectory(const std::string& directory);

// NotFound if there is no state file, DataLoss if it says nothing that can be understood.
absl::StatusOr<tensorflow::CheckpointState> ReadStateFile(const std::string& directory);

// Writes the state file with these paths, at least one, the last of which is the latest.
absl::Status WriteStateFile(const std::string& directory, const std::vector<std::string>& paths);

// True if the file itself is missing or damaged, as opposed to a disk or rights that keep it from being read now.
bool IsDamage(const absl::Status& status);

// Removes the files of a checkpoint that the state file of the directory names. A path elsewhere is left alone: a state
// file that came from another machine may point anywhere.
absl::Status RemoveCheckpoint(const std::string& directory, const std::string& path);

}  // namespace official::train
