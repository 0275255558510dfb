#include "utils/run/batch_size_search.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

namespace official::run {
namespace {

using Catch::Matchers::Contains;

// A machine on which a size has the examples/s of a table; sizes that are not in it do not fit.
struct Machine {
  std::map<int64_t, double> speeds;
  double seconds_per_trial = 1;
  std::vector<int64_t> tried = {};

  absl::StatusOr<ChosenSize> Search(const SizeRange& range) {
    return SearchBatchSize(
        range,
        [&](int64_t size) -> absl::StatusOr<SizeTrial> {
          tried.push_back(size);
          if (const auto speed = speeds.find(size); speed != speeds.end()) return SizeTrial{speed->second};
          return SizeTrial{.why_too_large = "it needs 9 GB"};
        },
        [&] { return seconds_per_trial * static_cast<double>(tried.size()); });
  }
};

const SizeRange kUpTo1024 = {.unit = 1, .first = 8, .largest = 1024};

TEST_CASE("The smallest size is chosen that is as fast as any, but for 5%") {
  Machine machine{{{8, 100}, {16, 180}, {32, 290}, {64, 300}, {128, 299}, {256, 500}}};
  const ChosenSize chosen = machine.Search(kUpTo1024).value();
  CHECK(chosen.batch_size == 32);
  CHECK(chosen.examples_per_sec == 290);
  CHECK(chosen.why == "290 examples/s, and no size from 8 to 128 has over 5% more; larger ones are not faster");
  CHECK(machine.tried == std::vector<int64_t>{8, 16, 32, 64, 128});  // two in a row that are not faster end it
}

TEST_CASE("One slow size does not end the search") {
  Machine machine{{{8, 100}, {16, 90}, {32, 200}, {64, 199}, {128, 198}}};
  CHECK(machine.Search(kUpTo1024).value().batch_size == 32);
}

TEST_CASE("No size is chosen that does not fit the memory") {
  Machine machine{{{8, 100}, {16, 200}, {32, 400}}};
  const ChosenSize chosen = machine.Search(kUpTo1024).value();
  CHECK(chosen.batch_size == 32);
  CHECK_THAT(chosen.why, Contains("64 does not fit: it needs 9 GB"));
}

TEST_CASE("If the first size does not fit, its halves are tried") {
  Machine machine{{{2, 100}, {1, 50}}};
  const ChosenSize chosen = machine.Search(kUpTo1024).value();
  CHECK(chosen.batch_size == 2);
  CHECK(chosen.why == "100 examples/s; 4 does not fit: it needs 9 GB");
  CHECK(machine.tried == std::vector<int64_t>{8, 4, 2});
}

TEST_CASE("If nothing fits, the error says of the smallest size why") {
  Machine machine{{}};
  const absl::Status status = machine.Search({.unit = 4, .first = 32, .largest = 1024}).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(std::string(status.message()), Contains("--batch_size=4") && Contains("it needs 9 GB"));
  CHECK(machine.tried.back() == 4);
}

TEST_CASE("No size is larger than the data, unless the smallest one is") {
  Machine machine{{{8, 100}, {16, 200}, {32, 400}}};
  SizeRange range = {.unit = 1, .first = 8, .largest = 31, .why_largest = "the training data have 31 examples"};
  const ChosenSize chosen = machine.Search(range).value();
  CHECK(chosen.batch_size == 16);
  CHECK_THAT(chosen.why, Contains("the training data have 31 examples"));
  Machine of_four{{{4, 100}}};
  range.largest = 5;
  CHECK(of_four.Search(range).value().batch_size == 4);
  CHECK(of_four.tried == std::vector<int64_t>{4});
  range = {.unit = 8, .first = 64, .largest = 5};
  CHECK(machine.Search(range).value().batch_size == 8);
}

TEST_CASE("A slow machine tries no size that would take the search longer than a minute") {
  Machine machine{.speeds = {{8, 100}, {16, 200}, {32, 400}, {64, 800}}, .seconds_per_trial = 16};
  const ChosenSize chosen = machine.Search(kUpTo1024).value();
  CHECK(chosen.batch_size == 16);  // after 32 s, the next size may take 32 s more
  CHECK_THAT(chosen.why, Contains("larger ones were not tried after 32 s"));
  machine = {.speeds = machine.speeds, .seconds_per_trial = 14};
  CHECK(machine.Search(kUpTo1024).value().batch_size == 32);
}

}  // namespace
}  // namespace official::run
