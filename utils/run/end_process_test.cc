#include "utils/run/end_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "utils/misc/exit_code.h"

namespace official::run {
namespace {

constexpr char kBeforeEnd[] = "before the end\n";

// How a process has ended, and what it has written to its log.
struct End {
  int exit_code;
  std::string log;

  // Returns how often a text is in the log.
  int Count(const char* text) const {
    const std::vector<std::string> parts = absl::StrSplit(log, text);
    return static_cast<int>(parts.size()) - 1;
  }
};

// Ends a process with an error, from four of its threads.
End EndBy(const absl::Status& error) {
  int log[2];
  REQUIRE(pipe(log) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(log[1], STDERR_FILENO);
    const auto before_end = [] {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kBeforeEnd, sizeof kBeforeEnd - 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other threads come meanwhile
    };
    std::array<std::thread, 4> threads;
    for (std::thread& thread : threads) thread = std::thread([&] { EndProcess("main", error, before_end); });
    for (std::thread& thread : threads) thread.join();
  }
  close(log[1]);
  End end = {.exit_code = -1, .log = ""};
  char bytes[512];
  for (ssize_t n; (n = read(log[0], bytes, sizeof bytes)) > 0;) end.log.append(bytes, n);
  close(log[0]);
  int status = -1;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  return end;
}

TEST_CASE("Of several threads that end the process the first one does, and does so once") {
  const End end = EndBy(absl::CancelledError("worker 1 is lost"));
  CHECK(end.exit_code == misc::kExitResumeMe);
  CHECK(end.Count("main: worker 1 is lost") == 1);
  CHECK(end.Count(kBeforeEnd) == 1);
}

TEST_CASE("An error after which no process is to begin again ends this one at once") {
  const End end = EndBy(absl::InternalError("a GPU has failed"));
  CHECK(end.exit_code == misc::kExitFailed);
  CHECK(end.Count("main: a GPU has failed") == 1);
  CHECK(end.Count(kBeforeEnd) == 0);
}

}  // namespace
}  // namespace official::run
