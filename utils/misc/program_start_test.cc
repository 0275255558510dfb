#include "utils/misc/program_start.h"

#include <sys/wait.h>
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

// Run by the test below.
TEST_CASE("Less than five seconds since the start", "[.started]") { CHECK(SecondsSinceProgramStart() < 5); }

TEST_CASE("What the process did before it became this program does not count") {
  const pid_t child = fork();
  if (child == 0) {
    sleep(6);
    execl("/proc/self/exe", "program_start_test", "[.started]", nullptr);
    _exit(127);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace official::misc
