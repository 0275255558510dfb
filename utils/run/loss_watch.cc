#include "utils/run/loss_watch.h"

#include <chrono>
#include <utility>

#include "utils/run/end_process.h"

namespace official::run {

LossWatch::LossWatch(distribute::Exchange& exchange, const std::string& program, std::function<void()> before_end)
    : thread_([this, &exchange, program, before_end = std::move(before_end)](const std::stop_token& stop) {
        constexpr std::chrono::milliseconds kLookEvery(100);
        std::unique_lock<std::mutex> lock(mutex_);
        while (!stop.stop_requested()) {
          never_.wait_for(lock, stop, kLookEvery, [] { return false; });
          const absl::Status status = stop.stop_requested() ? absl::OkStatus() : exchange.Check();
          if (!status.ok()) EndProcess(program, status, before_end);
        }
      }) {}

}  // namespace official::run
