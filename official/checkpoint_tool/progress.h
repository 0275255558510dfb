// The progress of a command that reads the values of checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "official/checkpoint_tool/checkpoint.h"
#include "utils/logs/task_progress.h"
#include "utils/train/checkpoint/tensor_reader.h"

namespace official::checkpoint_tool {

// Shows how many of the bytes of some checkpoints have been read, as long as it lives. The checkpoints must outlive it.
class ReadingProgress {
 public:
  ReadingProgress(const std::string& title, const std::vector<Checkpoint*>& checkpoints);
  ~ReadingProgress();
  ReadingProgress(const ReadingProgress&) = delete;
  ReadingProgress& operator=(const ReadingProgress&) = delete;

 private:
  const std::vector<Checkpoint*> checkpoints_;
  std::vector<std::unique_ptr<train::TensorReader>> readers_;  // of the checkpoints, which have others meanwhile
  logs::TaskProgress progress_;
};

}  // namespace official::checkpoint_tool
