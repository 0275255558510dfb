#include "utils/compute/program/arena.h"

#include "utils/compute/core/status.h"

namespace official::compute {

absl::Status Arena::Reserve(int64_t bytes) {
  if (bytes <= bytes_) return absl::OkStatus();
  std::unique_lock<std::mutex> lock;
  if (running_ != nullptr) lock = std::unique_lock<std::mutex>(*running_);
  if (memory_ != nullptr) RETURN_IF_ERROR(device_.Synchronize());
  memory_.reset();  // first, so that old and new are never there at once
  bytes_ = -1;
  ASSIGN_OR_RETURN(memory_, device_.Allocate(bytes));
  bytes_ = bytes;
  return absl::OkStatus();
}

}  // namespace official::compute
