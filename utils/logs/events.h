// Events of a run. With --log_format=json each is an object with its name under "event"; lines that are not events have
// "message", "warning" or "error" there, by their level.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/logs/json.h"

namespace official::logs {

// Logs `message`, in JSON with the event's name and `fields`.
void LogEvent(absl::string_view event, absl::string_view message, Json::Object fields = {});

}  // namespace official::logs
