#include "utils/run/end_process.h"

#include <cstdlib>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "utils/logs/log.h"
#include "utils/misc/exit_code.h"

namespace official::run {

void EndProcess(const std::string& program, const absl::Status& error, const std::function<void()>& before_end) {
  // Several threads may wait for the same: the first one to give up ends the process, and the others stay here.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const int exit_code = misc::ExitCode(error);
  logs::WriteLog(logs::Severity::ERROR, absl::StrCat(program, ": ", error.message()),
                 {{"event", "error"}, {"exit_code", exit_code}, {"signal", logs::Json()}});
  if (exit_code == misc::kExitResumeMe) before_end();
  std::_Exit(exit_code);
}

}  // namespace official::run
