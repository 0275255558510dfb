#include "utils/train/train_hooks.h"

#include <catch2/catch.hpp>

#include "utils/logs/captured_log.h"

namespace official::train {
namespace {

TEST_CASE("The time of the first step is told once") {
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const auto hook = MakeFirstStepHook();
  REQUIRE(hook->AfterStep({.global_step = 1}).ok());
  REQUIRE(hook->AfterStep({.global_step = 2}).ok());
  const std::string text = log.Text();
  CHECK_THAT(text, Catch::Matchers::Matches(".*first training step done [0-9]+ ms after process start\n"));
  CHECK(text.find("first") == text.rfind("first"));
}

}  // namespace
}  // namespace official::train
