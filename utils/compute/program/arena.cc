#include "utils/compute/program/arena.h"

#include <utility>

#include "utils/compute/core/status.h"

namespace official::compute {

absl::Status Arena::Reserve(int64_t bytes) {
  std::unique_lock<std::mutex> lock;
  if (running_ != nullptr) lock = std::unique_lock<std::mutex>(*running_);
  return ReserveForRun(bytes);
}

absl::Status Arena::ReserveForRun(int64_t bytes) {
  if (memory_ != nullptr && bytes <= bytes_) return absl::OkStatus();
  if (memory_ != nullptr) RETURN_IF_ERROR(device_.Synchronize());
  memory_.reset();  // first, so that old and new are never there at once
  const int64_t before = std::exchange(bytes_, 0);
  const auto allocate = [&](int64_t size) -> absl::Status {
    ASSIGN_OR_RETURN(memory_, device_.Allocate(size));
    bytes_ = size;
    return absl::OkStatus();
  };
  const absl::Status status = allocate(bytes);
  if (!status.ok() && before > 0) allocate(before).IgnoreError();
  return status;
}

}  // namespace official::compute
