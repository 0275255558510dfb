#include "utils/logs/output_style.h"

#include "absl/strings/str_cat.h"

namespace official::logs {

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view name) {
  if (name == "auto") return LogFormat::kAuto;
  if (name == "bar") return LogFormat::kBar;
  if (name == "simple") return LogFormat::kSimple;
  if (name == "json") return LogFormat::kJson;
  if (name == "none") return LogFormat::kNone;
  return absl::InvalidArgumentError(
      absl::StrCat("--log_format: '", name, "' is not one of auto, bar, simple, json, none."));
}

absl::StatusOr<ColorMode> ParseColorMode(absl::string_view name) {
  if (name == "auto") return ColorMode::kAuto;
  if (name == "always") return ColorMode::kAlways;
  if (name == "never") return ColorMode::kNever;
  return absl::InvalidArgumentError(absl::StrCat("--color: '", name, "' is not one of auto, always, never."));
}

OutputStyle ResolveOutputStyle(LogFormat format, ColorMode color, bool is_terminal, const GetEnv& get_env) {
  const auto env = [&](const char* name) {
    const char* value = get_env(name);
    return std::string(value == nullptr ? "" : value);
  };
  const bool capable = is_terminal && !env("TERM").empty() && env("TERM") != "dumb";
  OutputStyle style{format, color == ColorMode::kAlways};
  if (format == LogFormat::kAuto) {
    style.format = capable && env("CI").empty() ? LogFormat::kBar : LogFormat::kSimple;
  }
  if (color == ColorMode::kAuto && env("NO_COLOR").empty()) {
    const std::string force = env("CLICOLOR_FORCE");
    style.color = capable || (!force.empty() && force != "0");
  }
  return style;
}

}  // namespace official::logs
