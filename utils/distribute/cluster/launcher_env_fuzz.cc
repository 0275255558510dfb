// The input is an environment, a variable a line: NAME=value. The variable "workers" is the flag.
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/check.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, std::string> variables;
  for (const absl::string_view line : absl::StrSplit(official::fuzzing::AsBytes(data, size), '\n')) {
    variables.insert(absl::StrSplit(line, absl::MaxSplits('=', 1)));
  }
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const auto launch = official::distribute::ReadLauncherEnv(environment, variables["workers"]);
  if (!launch.ok()) {
    OFFICIAL_CHECK(absl::IsInvalidArgument(launch.status())) << launch.status();
    OFFICIAL_CHECK(!absl::StrContains(launch.status().message(), '\n')) << launch.status();
    return 0;
  }
  if (!launch->has_value()) return 0;
  OFFICIAL_CHECK(!absl::StrContains(Describe(**launch), '\n')) << Describe(**launch);
  return 0;
}
