#include "utils/misc/restart.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace official::misc {
namespace {

// Returns true if the command line of this process is open in it.
bool HasCommandLineOpen() {
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  return std::any_of(begin(descriptors), end(descriptors), [](const std::filesystem::directory_entry& entry) {
    std::error_code gone;  // as the descriptor of the iterator
    return std::filesystem::read_symlink(entry.path(), gone).filename() == "cmdline";
  });
}

// Ends the process at the second beginning, before Catch sees its arguments.
constexpr char kAgain[] = "OFFICIAL_RESTART_TEST";
constexpr int kBegunAgain = 77;
[[maybe_unused]] const bool checked = [] {
  const char* const value = std::getenv(kAgain);
  if (value != nullptr) _exit(std::string(value) == "2 0,1" && !HasCommandLineOpen() ? kBegunAgain : 1);
  return true;
}();

int StatusOf(void (*child)()) {
  const pid_t pid = fork();
  if (pid == 0) {
    child();
    _exit(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("A process begins again if it was asked to, with the variable and no further open file, and not else") {
  CHECK(StatusOf(RestartIfRequested) == 0);
  CHECK(StatusOf([] {
          RequestRestart(kAgain, "2 0,1");
          RestartIfRequested();
        }) == kBegunAgain);
}

}  // namespace
}  // namespace official::misc
