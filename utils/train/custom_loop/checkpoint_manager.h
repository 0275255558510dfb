// CheckpointManager: the checkpoints of a training loop of one's own, as tf.train.CheckpointManager keeps them: the
// variables of a StrategyScope or of a ClusterCoordinator in TensorFlow's format, by their names. A checkpoint knows
// nothing of the strategy: any number of replicas, workers and parameter servers restores it.
//
// All workers that have the scope make the same calls at the same point. The directory is the chief's alone, which
// sends the others what is in it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/custom_loop/trackable.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::train {

// RestoreOptions: the checks that tf.train.Checkpoint.restore leaves to the functions of its result.
struct RestoreOptions {
  // True: InvalidArgument for a checkpoint without one of the variables made so far, which else keeps its value.
  bool assert_existing_objects_matched = false;
};

class CheckpointManager {
 public:
  // Makes the directory if necessary. The `max_to_keep` latest checkpoints are kept; 0 keeps all. `variables` must
  // outlive the manager. Errors: those of CheckpointSaver::Open, on all workers.
  static absl::StatusOr<std::unique_ptr<CheckpointManager>> Open(distribute::Trackable& variables,
                                                                 const std::string& directory, int max_to_keep = 5);

  // Gives the variables their values in the latest checkpoint, also those that are made later, and returns
  // its step; nothing if there is no checkpoint. An on-read variable that sums gets value / replicas in each copy.
  // InvalidArgument for a variable of another type and for a checkpoint whose name does not end in a step, as "ckpt" of
  // tf.train.Checkpoint.write; DataLoss if no checkpoint is intact.
  absl::StatusOr<std::optional<int64_t>> RestoreLatest(const RestoreOptions& options = {});
  // Writes a checkpoint of all variables made so far. Errors: those of Trackable::ReadTracked and of the file system,
  // on all workers.
  absl::Status Save(int64_t step);

 private:
  CheckpointManager(distribute::Trackable& variables, std::string directory)
      : variables_(variables), directory_(std::move(directory)) {}

  distribute::Trackable& variables_;
  const std::string directory_;
  std::unique_ptr<CheckpointSaver> saver_;  // of the chief
};

}  // namespace official::train
