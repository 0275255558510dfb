// MLPerf's log of a training, in the lines that mlperf_logging and its compliance checker read under the rules of
// training 0.7.0 and later (github.com/mlcommons/logging):
//   :::MLLOG {"namespace": "", "time_ms": 1533040496000, "event_type": "POINT_IN_TIME", "key": "seed", "value": 1,
//             "metadata": {"file": "utils/run/run.cc", "lineno": 17}}
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"

namespace official::logs {

// For one thread.
class MlperfLog {
 public:
  using Clock = std::function<absl::Time()>;

  // Asks whether `path` can be written, creating it and its directory, but changes nothing in it before Begin. Without
  // a path all that is written is dropped. Errors name the file and carry the system's reason.
  static absl::StatusOr<std::unique_ptr<MlperfLog>> Open(std::optional<std::string> path, Clock clock = absl::Now);

  // A line, in the file when this returns; before Begin it waits for that. A key that ends in _start or _stop begins or
  // ends an interval.
  absl::Status Write(absl::string_view key, Json value = nullptr, Json::Object metadata = {},
                     const char* file = __builtin_FILE(), int line = __builtin_LINE());

  // A new training replaces what is in the file by the lines that wait. One that is resumed goes on behind the lines of
  // its earlier part, but for one that a crash cut off and the run_stop that turned out to be none; what waits is
  // dropped, since it is there from that part.
  absl::Status Begin(bool resumed);

 private:
  MlperfLog(std::optional<std::string> path, Clock clock) : path_(std::move(path)), clock_(std::move(clock)) {}

  const std::optional<std::string> path_;
  const Clock clock_;
  std::string waiting_;
  std::unique_ptr<files::FileWriter> file_;  // from Begin on
};

}  // namespace official::logs
