#include "utils/flags/dump_config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/flags/environment.h"
#include "utils/flags/flag_value.h"
#include "utils/flags/help.h"
#include "utils/misc/text.h"

namespace official::flags {
namespace {

// The variable that a default directory is below; "" if none decides it.
std::string VariableOf(const std::string& directory) {
  for (const char* const name : {"XDG_DATA_HOME", "XDG_CACHE_HOME", "HOME"}) {
    const char* const value = std::getenv(name);
    const std::string parent = value == nullptr ? "" : value;
    if (parent.size() > 1 && absl::StartsWith(directory, absl::StrCat(parent, "/"))) return name;
  }
  return "";
}

std::string OriginOf(const CommandLine::Flag& flag, const std::string& value) {
  if (flag.origin != "default" || !absl::EndsWith(flag.spec.name, "_dir")) return flag.origin;
  const std::string variable = VariableOf(value);
  return variable.empty() ? flag.origin : absl::StrCat(flag.origin, ", below the environment variable ", variable);
}

// One line for each of the things besides flags that decide a run.
absl::StatusOr<std::string> Surroundings(const CommandLine& command_line) {
  std::string text;
  if (!command_line.words().empty()) {
    absl::StrAppend(&text, "# words, which no flag file has:");
    for (const std::string& word : command_line.words()) absl::StrAppend(&text, " ", misc::Printable(word));
    absl::StrAppend(&text, "\n");
  }
  if (command_line.has("workers")) {
    const auto environment = [](const char* name) { return std::getenv(name); };
    ASSIGN_OR_RETURN(const auto launch, distribute::ReadLauncherEnv(environment, command_line.ValueOf("workers")));
    if (launch) absl::StrAppend(&text, "# ", misc::Printable(distribute::Describe(*launch)), "\n");
  }
  for (const EnvironmentVariable& variable : VariablesThatAreRead(environ)) {
    absl::StrAppend(&text, "# environment: ", variable.name, "=", misc::Printable(variable.value), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ConfigDump(const Program& program, const CommandLine& command_line) {
  ASSIGN_OR_RETURN(const std::string surroundings, Surroundings(command_line));
  std::string text = absl::StrCat("# ", VersionText(program), "# To run with these flags: ", program.name,
                                  " --flagfile=FILE\n", surroundings);
  for (const CommandLine::Group& group : command_line.groups()) {
    absl::StrAppend(&text, "\n# ---- ", group.name, " ----\n");
    for (const CommandLine::Flag& flag : group.flags) {
      const std::string value = ValueText(flag);
      absl::StrAppend(&text, "# ", misc::Printable(OriginOf(flag, value)), "\n--", flag.spec.name, "=", value, "\n");
    }
  }
  return text;
}

}  // namespace official::flags
