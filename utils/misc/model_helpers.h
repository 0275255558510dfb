// Helpers of every run loop, as in official/utils/misc/model_helpers.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::misc {

// True if training may stop early: there is a threshold and the metric has reached it, both as floats. False for a NaN.
bool PastStopThreshold(std::optional<double> stop_threshold, double eval_metric);

// Does --clean: empties `model_dir`, so that the run starts over. The directory itself stays (it may be a link or a
// mount point), and so does run.lock, which the caller holds; links inside are removed, not followed. Killed at any
// moment, it leaves a training with its latest checkpoint, as if it had not begun, or one without any, which no run
// continues. Returns whether there was anything to delete; a missing directory is fine. InvalidArgument, and nothing is
// deleted, if `model_dir`
//   - is a file, the root, a directory shared by all users (as /tmp), or holds the user's home or the working
//   directory,
//   - is or holds one of `keep` (what the run reads: files, directories, checkpoints by their prefix),
//   - holds something, but nothing that a training run writes.
absl::StatusOr<bool> ApplyClean(const std::string& model_dir, const std::vector<std::string>& keep);

// Returns InvalidArgument where ApplyClean does; deletes nothing.
absl::Status CheckClean(const std::string& model_dir, const std::vector<std::string>& keep);

}  // namespace official::misc
