#include "utils/misc/restart.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace official::misc {
namespace {

struct Variable {
  std::string name, value;
};
std::optional<Variable>& Requested() {
  static std::optional<Variable> requested;
  return requested;
}

}  // namespace

void RequestRestart(absl::string_view variable, absl::string_view value) {
  Requested() = Variable{std::string(variable), std::string(value)};
}

void RestartIfRequested(char** argv) {
  if (!Requested()) return;
  setenv(Requested()->name.c_str(), Requested()->value.c_str(), /*overwrite=*/1);
  std::fflush(nullptr);
  execv("/proc/self/exe", argv);
  std::perror("cannot begin again");
}

}  // namespace official::misc
