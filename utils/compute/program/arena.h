// Device memory for the intermediate values of programs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {

// Programs that never run at the same time may share an arena: each uses all of it while it runs.
class Arena {
 public:
  // `running`: a mutex that is held while a program runs, for an arena that moves while programs do: it moves with it.
  explicit Arena(Device& device, std::mutex* running = nullptr) : device_(device), running_(running) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes the arena at least `bytes` large. If it grows, it moves, and its content is lost; likewise if it cannot, and
  // then it is as large as before or, where there is no memory even for that, gone.
  absl::Status Reserve(int64_t bytes);
  // The same for a program that is about to run, while `running` is held.
  absl::Status ReserveForRun(int64_t bytes);
  int64_t bytes() const { return bytes_; }
  char* data() const { return static_cast<char*>(memory_.get()); }

 private:
  Device& device_;
  std::mutex* const running_;
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
};

}  // namespace official::compute
