// RunState: how far a run has come. Every checkpoint has it, in addition to the variables.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/data/batch.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::train {

struct RunState {
  int64_t global_step = 0;  // number of updates done; also the variable of this name
  data::Position position;  // position at which the data continues
  uint64_t seed = 1;        // seed of the whole run, which it began with
  // The positions of all workers of a job with parameter servers, where each goes at its own pace; empty: there is one.
  std::vector<data::Position> worker_positions = {};
  // The step of the last finished evaluation, by this run or one before it in model_dir, which keeps it in a file.
  std::optional<int64_t> evaluated_step = std::nullopt;
  // The metric of that evaluation that --stop_threshold compares, if the flag was given.
  std::optional<double> evaluated_metric = std::nullopt;
};

// Returns the state in a checkpoint, without that of evaluations. What one written by TensorFlow does not have is that
// of a new run, with `seed`. DataLoss for a value of another type or that no run has written.
absl::StatusOr<RunState> ReadRunState(const BundleReader& checkpoint, uint64_t seed);

// True if the checkpoint was written by a run of these programs, not by TensorFlow.
bool HasRunState(const BundleReader& checkpoint);

// Adds the state to the tensors of a checkpoint, but for global_step, which is a variable.
void AddRunState(const RunState& state, std::map<std::string, SavedTensor>& tensors);

// Returns the state as bytes for other workers of the same program, and from such bytes; DataLoss if they are others.
std::string BytesOf(const RunState& state);
absl::StatusOr<RunState> RunStateFrom(absl::string_view bytes);

}  // namespace official::train
