#include "utils/run/loss_watch.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/logs/log.h"
#include "utils/misc/exit_code.h"

namespace official::run {

LossWatch::LossWatch(distribute::Exchange& exchange, const std::string& program, std::function<void()> before_end)
    : thread_([this, &exchange, program, before_end = std::move(before_end)](const std::stop_token& stop) {
        constexpr std::chrono::milliseconds kLookEvery(100);
        std::unique_lock<std::mutex> lock(mutex_);
        while (!stop.stop_requested()) {
          never_.wait_for(lock, stop, kLookEvery, [] { return false; });
          const absl::Status status = stop.stop_requested() ? absl::OkStatus() : exchange.Check();
          if (status.ok()) continue;
          const int exit_code = misc::ExitCode(status);
          logs::WriteLog(logs::Severity::ERROR, absl::StrCat(program, ": ", status.message()),
                         {{"event", "error"}, {"exit_code", exit_code}, {"signal", logs::Json()}});
          before_end();
          std::_Exit(exit_code);
        }
      }) {}

}  // namespace official::run
