#include "utils/logs/console.h"

#include <unistd.h>

#include <cstdlib>

#include "utils/logs/log.h"
#include "utils/logs/output_style.h"

namespace official::logs {

absl::Status LogToConsole(absl::string_view log_format) {
  const absl::StatusOr<LogFormat> format = ParseLogFormat(log_format);
  if (!format.ok()) return format.status();
  InitLogging(ResolveOutputStyle(*format, ColorMode::kAuto, isatty(STDERR_FILENO) != 0,
                                 [](const char* name) -> const char* { return std::getenv(name); }));
  return absl::OkStatus();
}

}  // namespace official::logs
