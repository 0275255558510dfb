// Writes checkpoints behind the training: the caller hands over a copy of the state and goes on.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::train {

// What goes into a checkpoint, by name.
struct CheckpointContent {
  std::map<std::string, compute::Tensor> tensors;
  std::map<std::string, std::string> strings;
};

class BackgroundSaver {
 public:
  explicit BackgroundSaver(std::unique_ptr<CheckpointSaver> saver) : saver_(std::move(saver)) {}
  ~BackgroundSaver();  // waits for the checkpoint that is being written

  // Starts writing model.ckpt-<step>, after the one before is finished. Returns that one's error. A tensor that is not
  // finite is never written: that is an error of this save.
  absl::Status Save(int64_t step, CheckpointContent content);
  // Waits for the checkpoint that is being written; its error.
  absl::Status Wait();
  // The step of the last checkpoint that was written whole, by the last Wait or Save.
  std::optional<int64_t> finished_step() const { return finished_step_; }

 private:
  const std::unique_ptr<CheckpointSaver> saver_;
  std::thread writer_;
  absl::Status status_;  // of the last write; read after joining, as is the next
  std::optional<int64_t> finished_step_;
};

}  // namespace official::train
