#include "utils/run/end_process.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "utils/logs/log.h"
#include "utils/misc/exit_code.h"

namespace official::run {

void EndProcess(const std::string& program, const absl::Status& error, const std::function<void()>& before_end) {
  const int exit_code = misc::ExitCode(error);
  logs::WriteLog(logs::Severity::ERROR, absl::StrCat(program, ": ", error.message()),
                 {{"event", "error"}, {"exit_code", exit_code}, {"signal", logs::Json()}});
  before_end();
  std::_Exit(exit_code);
}

}  // namespace official::run
