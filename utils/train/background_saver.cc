#include "utils/train/background_saver.h"

#include <utility>

#include "utils/compute/core/status.h"

namespace official::train {

BackgroundSaver::~BackgroundSaver() {
  if (writer_.joinable()) writer_.join();
}

absl::Status BackgroundSaver::Wait() {
  if (writer_.joinable()) writer_.join();
  return std::exchange(status_, absl::OkStatus());
}

absl::Status BackgroundSaver::Save(int64_t step, CheckpointContent content) {
  RETURN_IF_ERROR(Wait());
  writer_ = std::thread(
      [this, step, content = std::move(content)] { status_ = saver_->Save(step, content.tensors, content.strings); });
  return absl::OkStatus();
}

}  // namespace official::train
