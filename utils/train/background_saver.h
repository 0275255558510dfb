// Writes checkpoints in the background: the caller hands over copies of the variables and continues.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::train {

// The contents of a checkpoint, by name. Tensors are read by the thread that saves.
struct CheckpointContent {
  std::map<std::string, SavedTensor> tensors;
  std::map<std::string, std::string> strings;
  std::string advice = "";  // what to try if a tensor is not finite: the last sentence of that error
};

class BackgroundSaver {
 public:
  // Holds at most `most_held` bytes of tensors that are read but not written yet, or one tensor.
  explicit BackgroundSaver(std::unique_ptr<CheckpointSaver> saver, int64_t most_held = int64_t{256} << 20)
      : saver_(std::move(saver)), most_held_(most_held) {}

  // Starts writing model.ckpt-<step>, after the previous one is finished. When this returns, all tensors are read: at
  // once, if all of them may be held, else as writing allows. Where no thread can start, this thread writes. A
  // checkpoint with a tensor that is not finite is never written: that is an error of this save.
  // If the storage failed, which may pass, Wait and a warning in the log tell so, and the next Save tries again: it
  // waits until its checkpoint is written, and returns the error if the storage fails a second time in a row. After any
  // other error of the previous save, returns that error and writes nothing.
  absl::Status Save(int64_t step, const CheckpointContent& content);
  // Waits for the checkpoint that is being written, with log lines if that takes long; returns the error of the last
  // save.
  absl::Status Wait();
  // True if the storage failed the last save and not the one before it, as of the last Wait or Save.
  bool tries_again() const { return tries_again_; }
  // The step of the last checkpoint that was completely written, as of the last Wait or Save.
  std::optional<int64_t> finished_step() const { return finished_step_; }

 private:
  struct Outcome {
    absl::Status status;
    bool storage_failed = false;  // not the reading of tensors, nor memory
  };

  // Waits until writing_ is done, and logs that it waits.
  void WaitLong() const;
  // Writes the checkpoint if its tensors are finite, and logs it, or that the storage failed for the first time in a
  // row. Exceptions, as of memory or files, are errors.
  Outcome Write(int64_t step, const CheckpointContent& content, bool failed_before) const;
  // Keeps the outcome of the save of writing_step_.
  void Keep(Outcome outcome);

  const std::unique_ptr<CheckpointSaver> saver_;
  const int64_t most_held_;
  Outcome last_;
  bool tries_again_ = false;
  std::optional<int64_t> finished_step_;
  int64_t writing_step_ = 0;      // step of the checkpoint being written, while writing_ is valid
  std::future<Outcome> writing_;  // last: its destructor waits for the write
};

}  // namespace official::train
