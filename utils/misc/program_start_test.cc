#include "utils/misc/program_start.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace official::misc {
namespace {

// When the constructors of this file run.
const double kAtConstructors = SecondsSinceProgramStart();

TEST_CASE("The program starts before its constructors, and time goes on") {
  CHECK(kAtConstructors >= 0);
  const double before = SecondsSinceProgramStart();
  CHECK(before > kAtConstructors);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(SecondsSinceProgramStart() - before >= 0.02);
}

// By the clock that also counts the time in which the machine sleeps.
double Now() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// When a process became this program, for the test that it runs.
constexpr char kStart[] = "PROGRAM_START_TEST_START";

// Run by the test below.
TEST_CASE("The program has not started before the process became it", "[.started]") {
  const double since_start = SecondsSinceProgramStart();  // first: time goes on
  CHECK(since_start <= Now() - std::stod(std::getenv(kStart)));
}

TEST_CASE("What the process did before it became this program does not count") {
  const pid_t child = fork();
  if (child == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    setenv(kStart, std::to_string(Now()).c_str(), /*overwrite=*/1);
    execl("/proc/self/exe", "program_start_test", "[.started]", nullptr);
    _exit(127);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace official::misc
