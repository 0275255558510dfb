#include "utils/misc/stop_signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>

namespace official::misc {
namespace {

// How a child process that runs `body` ends.
int StatusOfChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(7);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("A signal is kept for who asks, while a StopSignals lives") {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const int status = StatusOfChild([signal] {
      StopSignals signals;
      if (StopSignalReceived() != 0) _exit(1);
      raise(signal);
      _exit(StopSignalReceived() == signal && !TakeSaveRequest() ? 0 : 2);
    });
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  const int after = StatusOfChild([] {
    { StopSignals signals; }
    raise(SIGTERM);
  });
  CHECK(WIFSIGNALED(after));
  CHECK(WTERMSIG(after) == SIGTERM);
}

TEST_CASE("A second SIGINT ends the process at once, a second SIGTERM does not") {
  const int interrupted = StatusOfChild([] {
    StopSignals signals;
    raise(SIGINT);
    raise(SIGINT);
  });
  CHECK(WIFSIGNALED(interrupted));
  CHECK(WTERMSIG(interrupted) == SIGINT);
  const int terminated = StatusOfChild([] {
    StopSignals signals;
    raise(SIGTERM);
    raise(SIGTERM);
  });
  CHECK(WIFEXITED(terminated));
}

TEST_CASE("The first signal counts, and a second SIGINT after any other") {
  const int first = StatusOfChild([] {
    StopSignals signals;
    raise(SIGUSR1);
    raise(SIGTERM);
    _exit(StopSignalReceived() == SIGUSR1 ? 0 : 1);
  });
  CHECK(WIFEXITED(first));
  CHECK(WEXITSTATUS(first) == 0);
  const int interrupted = StatusOfChild([] {
    StopSignals signals;
    raise(SIGINT);
    raise(SIGTERM);
    raise(SIGINT);
  });
  CHECK(WIFSIGNALED(interrupted));
  CHECK(WTERMSIG(interrupted) == SIGINT);
}

TEST_CASE("A signal that was taken otherwise is one that came") {
  const int status = StatusOfChild([] {
    RequestStop(0);
    if (StopSignalReceived() != 0) _exit(1);
    RequestStop(SIGTERM);
    RequestStop(SIGINT);
    _exit(StopSignalReceived() == SIGTERM ? 0 : 2);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("A signal that came ignored stays ignored") {
  const int status = StatusOfChild([] {
    std::signal(SIGINT, SIG_IGN);
    StopSignals signals;
    raise(SIGINT);
    raise(SIGINT);
    _exit(StopSignalReceived() == 0 ? 0 : 1);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("SIGUSR2 asks to save, once") {
  const int status = StatusOfChild([] {
    StopSignals signals;
    raise(SIGUSR2);
    _exit(TakeSaveRequest() && !TakeSaveRequest() && StopSignalReceived() == 0 ? 0 : 1);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("The parent sees the signal") {
  const int status = StatusOfChild([] { DieOfSignal(SIGUSR1); });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGUSR1);
}

}  // namespace
}  // namespace official::misc
