#include "utils/train/train_hooks.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace official::train {
namespace {

TEST_CASE("The time since the process was started comes from the system") {
  const double since_start = MillisecondsSinceProcessStart();
  CHECK(since_start > -10);  // a tick
  // A process that was started with the machine.
  const std::string stat = std::string(std::getenv("TEST_TMPDIR")) + "/stat";
  std::ofstream(stat) << "1 (a ) b) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0";
  CHECK(MillisecondsSinceProcessStart(stat) > since_start);
}

TEST_CASE("Without /proc it is the time since the program's initialization") {
  const std::string cut = std::string(std::getenv("TEST_TMPDIR")) + "/cut";
  std::ofstream(cut) << "1 (a) S 0 1";
  for (const std::string& file : {std::string("/no/such/file"), std::string("/dev/null"), cut}) {
    INFO(file);
    const double since_initialization = MillisecondsSinceProcessStart(file);
    CHECK(since_initialization >= 0);
    CHECK(since_initialization <= MillisecondsSinceProcessStart() + 10);
  }
}

}  // namespace
}  // namespace official::train
