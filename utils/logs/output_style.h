// The style of the console output: --log_format, --color and what the environment says about the terminal.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::logs {

enum class LogFormat {
  kAuto,    // kBar on a terminal, else kSimple
  kBar,     // lines, and below them one live line of progress
  kSimple,  // lines
  kJson,    // one JSON object a line
  kNone,    // warnings and errors only
};

// Parses auto, bar, simple, json or none; InvalidArgument, naming them, otherwise.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view name);

enum class ColorMode { kAuto, kAlways, kNever };

// Parses auto, always or never; InvalidArgument, naming them, otherwise.
absl::StatusOr<ColorMode> ParseColorMode(absl::string_view name);

struct OutputStyle {
  LogFormat format = LogFormat::kSimple;  // never kAuto
  bool color = false;
};

// Returns the value of an environment variable, or null: std::getenv, or a table in tests.
using GetEnv = std::function<const char*(const char* name)>;

// Returns the style for a stream that is a terminal or not. A format or colour mode other than auto is used as it is.
// For auto:
//   live line: on a terminal with TERM set and not "dumb", and no CI in the environment;
//   colour:    off if NO_COLOR is set; else on if CLICOLOR_FORCE is set and not "0"; else on a terminal as above.
// An empty variable counts as not set. Source: no-color.org, bixense.com/clicolors, clig.dev.
OutputStyle ResolveOutputStyle(LogFormat format, ColorMode color, bool is_terminal, const GetEnv& get_env);

}  // namespace official::logs
