// LOG(INFO) << "message": one line on stderr, from any thread.
//   I 12:34:56.789 message                                                                   bar, simple
//   {"time": "2018-07-31T12:34:56.789Z", "level": "info", "message": "message"}              json
// Times are UTC. The levels are INFO, WARNING and ERROR; --log_format=none drops INFO. A message of several lines stays
// as it is, except in JSON. This does not use spdlog, which costs 0.6 to 0.8 ms at every start and would need its own
// sink and formatter here: it has neither the live line nor the JSON fields.
#pragma once

#include <unistd.h>

#include <sstream>

#include "absl/strings/string_view.h"
#include "utils/logs/json.h"
#include "utils/logs/output_style.h"

#define LOG(severity)                                                                   \
  if (!::official::logs::IsLogged(::official::logs::Severity::severity)) [[unlikely]] { \
  } else                                                                                \
    ::official::logs::LogMessage(::official::logs::Severity::severity).stream()

namespace official::logs {

enum class Severity { INFO, WARNING, ERROR };

// Sets the form of all later lines, and the descriptor they go to. Before the first call the form is simple, without
// colour.
void InitLogging(const OutputStyle& style, int fd = STDERR_FILENO);

LogFormat CurrentLogFormat();

bool IsLogged(Severity severity);

// Writes one line. `fields` follow "message" in a JSON line and are left out of the other forms.
void WriteLog(Severity severity, absl::string_view message, Json::Object fields = {});

// In the bar format, keeps `text` as the last line of the terminal: lines logged later scroll above it. It is cut to
// the width of the terminal. An empty text removes it. No effect in other formats.
void ShowLiveLine(absl::string_view text);

// Collects what is streamed into it and logs it when destroyed; made by LOG only.
class LogMessage {
 public:
  explicit LogMessage(Severity severity);
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;
  ~LogMessage();

  std::ostream& stream() { return message_; }

 private:
  const Severity severity_;
  std::ostringstream message_;
};

}  // namespace official::logs
