#include "utils/compute/kernel/algorithm_choices.h"

#include <catch2/catch.hpp>

namespace official::compute {
namespace {

using Catch::Matchers::Contains;

std::string Choose(AlgorithmChoices& choices, const std::string& key, const std::string& choice) {
  return choices.FindOrChoose(key, [&]() -> absl::StatusOr<std::string> { return choice; }).value();
}

TEST_CASE("The first choice for a key stays") {
  AlgorithmChoices choices;
  CHECK(choices.TakeNew().count == 0);
  CHECK(Choose(choices, "Conv2D on cpu", "winograd") == "winograd");
  CHECK(choices.TakeNew().count == 1);
  CHECK(Choose(choices, "Conv2D on cpu", "direct") == "winograd");
  CHECK(choices.TakeNew().count == 0);
  choices.Forget("Conv2D on cpu");
  CHECK(Choose(choices, "Conv2D on cpu", "direct") == "direct");
}

TEST_CASE("Where nothing can be chosen nothing is kept") {
  AlgorithmChoices choices;
  const auto fails = []() -> absl::StatusOr<std::string> { return absl::InternalError("no plan"); };
  CHECK(choices.FindOrChoose("key", fails).status().message() == "no plan");
  CHECK(choices.TakeNew().count == 0);
  CHECK(Choose(choices, "key", "b") == "b");
}

TEST_CASE("Choices go through a text") {
  AlgorithmChoices choices, others;
  Choose(choices, "b 1", "x=1 y=2");
  Choose(choices, "a", "z");
  REQUIRE(others.Parse(choices.ToText()).ok());
  CHECK(others.TakeNew().count == 0);
  CHECK(Choose(others, "b 1", "other") == "x=1 y=2");
  CHECK(Choose(others, "a", "other") == "z");
  CHECK(others.TakeNew().count == 0);
}

TEST_CASE("A text that is none of ours is refused whole, with its line") {
  const std::string bad = GENERATE("a\tb\nno tab", "a\tb\nc\t", "a\tb\n\td", "a\tb\nc\td\te");
  AlgorithmChoices choices;
  const absl::Status status = choices.Parse(bad);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains("line 2 "));
  CHECK(Choose(choices, "a", "mine") == "mine");
}

}  // namespace
}  // namespace official::compute
