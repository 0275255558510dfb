#include "utils/logs/output_style.h"

#include <catch2/catch.hpp>
#include <map>

namespace official::logs {
namespace {

struct Case {
  std::map<std::string, std::string> env;
  bool is_terminal;
  LogFormat format;
  bool color;
};

TEST_CASE("auto: a live line and colour only where the terminal can show them") {
  const auto [env, is_terminal, format, color] =
      GENERATE(table<std::map<std::string, std::string>, bool, LogFormat, bool>({
          {{{"TERM", "xterm"}}, true, LogFormat::kBar, true},
          {{{"TERM", "xterm"}}, false, LogFormat::kSimple, false},
          {{{"TERM", "dumb"}}, true, LogFormat::kSimple, false},
          {{}, true, LogFormat::kSimple, false},
          {{{"TERM", "xterm"}, {"CI", "true"}}, true, LogFormat::kSimple, true},
          {{{"TERM", "xterm"}, {"CI", ""}}, true, LogFormat::kBar, true},
          {{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, true, LogFormat::kBar, false},
          {{{"TERM", "xterm"}, {"NO_COLOR", ""}}, true, LogFormat::kBar, true},
          {{{"CLICOLOR_FORCE", "1"}}, false, LogFormat::kSimple, true},
          {{{"CLICOLOR_FORCE", "0"}}, false, LogFormat::kSimple, false},
          {{{"TERM", "dumb"}, {"CLICOLOR_FORCE", "1"}}, true, LogFormat::kSimple, true},
          {{{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}, false, LogFormat::kSimple, false},
      }));
  const auto& table = env;
  const auto get_env = [&table](const char* name) {
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second.c_str();
  };
  CAPTURE(table, is_terminal);
  const OutputStyle style = ResolveOutputStyle(LogFormat::kAuto, ColorMode::kAuto, is_terminal, get_env);
  CHECK(style.format == format);
  CHECK(style.color == color);
}

TEST_CASE("a flag beats the environment") {
  const auto dumb_ci = [](const char* name) { return std::string(name) == "TERM" ? "dumb" : "1"; };
  const OutputStyle on = ResolveOutputStyle(LogFormat::kBar, ColorMode::kAlways, false, dumb_ci);
  CHECK(on.format == LogFormat::kBar);
  CHECK(on.color);
  const auto xterm = [](const char* name) { return std::string(name) == "TERM" ? "xterm" : nullptr; };
  const OutputStyle off = ResolveOutputStyle(LogFormat::kJson, ColorMode::kNever, true, xterm);
  CHECK(off.format == LogFormat::kJson);
  CHECK_FALSE(off.color);
}

TEST_CASE("unknown formats and colour modes are refused by name") {
  CHECK(ParseLogFormat("json").value() == LogFormat::kJson);
  CHECK(ParseLogFormat("Json").status() ==
        absl::InvalidArgumentError("--log_format: 'Json' is not one of auto, bar, simple, json, none."));
  CHECK(ParseColorMode("never").value() == ColorMode::kNever);
  CHECK(ParseColorMode("").status() == absl::InvalidArgumentError("--color: '' is not one of auto, always, never."));
}

}  // namespace
}  // namespace official::logs
