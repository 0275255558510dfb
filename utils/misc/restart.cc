#include "utils/misc/restart.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

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

void RestartIfRequested() {
  if (!Requested()) return;
  std::vector<std::string> arguments;
  std::ifstream command_line("/proc/self/cmdline");
  for (std::string argument; std::getline(command_line, argument, '\0');) arguments.push_back(argument);
  command_line.close();  // else it stays open at the next beginning
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  setenv(Requested()->name.c_str(), Requested()->value.c_str(), /*overwrite=*/1);
  std::fflush(nullptr);
  execv("/proc/self/exe", argv.data());
  std::perror("cannot begin again");
}

}  // namespace official::misc
