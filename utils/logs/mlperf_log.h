// MLPerf's log of a training, in the lines that mlperf_logging and its compliance checker read under the rules of
// training 0.7.0 and later (github.com/mlcommons/logging):
//   :::MLLOG {"namespace": "", "time_ms": 1533040496000, "event_type": "POINT_IN_TIME", "key": "seed", "value": 1,
//             "metadata": {"file": "utils/run/mlperf_hook.cc", "lineno": 41}}
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"

namespace official::logs {

// Writes the log; for one thread.
class MlperfLog {
 public:
  using Clock = std::function<absl::Time()>;

  // Checks that `path` can be written, creating it and its directory, but changes nothing in it before Begin. Errors
  // name the file and carry the system's reason; AlreadyExists if it has something else than a log.
  static absl::StatusOr<std::unique_ptr<MlperfLog>> Open(const std::string& path, Clock clock = absl::Now);

  // Writes a line, which is in the file when this returns; before Begin it is held until then. A key that ends in
  // _start or _stop begins or ends an interval.
  absl::Status Write(absl::string_view key, Json value = nullptr, Json::Object metadata = {},
                     const char* file = __builtin_FILE(), int line = __builtin_LINE());

  // Begins the file. A new training replaces its contents by the held lines. A resumed one keeps the lines of its
  // earlier part, except one that a crash cut off and a run_stop that was not the end, and appends to them; the held
  // lines are dropped, since that part has them.
  absl::Status Begin(bool resumed);

 private:
  MlperfLog(std::string path, Clock clock) : path_(std::move(path)), clock_(std::move(clock)) {}

  const std::string path_;
  const Clock clock_;
  std::string waiting_;
  std::unique_ptr<files::FileWriter> file_;  // from Begin on
};

}  // namespace official::logs
