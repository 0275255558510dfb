#include "utils/data/fingerprint.h"

#include <catch2/catch.hpp>
#include <string>

namespace official::data {
namespace {

std::string Of(const std::string& content) {
  Fingerprint fingerprint;
  fingerprint.AddContent(content.data(), static_cast<int64_t>(content.size()));
  return fingerprint.ToString(3);
}

TEST_CASE("A fingerprint changes with the contents and their size") {
  CHECK(Of("abc") == Of("abc"));
  CHECK(Of("abc") != Of("abd"));
  CHECK(Of("") != Of(std::string(1, '\0')));
  CHECK_THAT(Of("abc"), Catch::Matchers::Matches("3 examples, digest [0-9a-f]{8}"));

  std::string large(5 << 20, 'x');
  const std::string before = Of(large);
  CHECK(Of(large) == before);
  large[0] = 'y';
  CHECK(Of(large) != before);
  large[0] = 'x';
  large.back() = 'y';
  CHECK(Of(large) != before);
  large.back() = 'x';
  CHECK(Of(large + "x") != before);
  // Other data differ almost everywhere, which no sample misses.
  for (size_t i = 0; i < large.size(); i += 100) large[i] = 'y';
  CHECK(Of(large) != before);
}

TEST_CASE("A fingerprint names the files, without their directory, and knows their order") {
  Fingerprint one, two, swapped;
  one.AddFile("/data/train.csv");
  CHECK_THAT(one.ToString(7), Catch::Matchers::StartsWith("7 examples in train.csv, digest "));
  Fingerprint moved;
  moved.AddFile("/elsewhere/train.csv");
  CHECK(moved.ToString(7) == one.ToString(7));
  for (const char* name : {"a", "b", "c"}) two.AddFile(name);
  CHECK_THAT(two.ToString(1), Catch::Matchers::StartsWith("1 examples in 3 files, a to c, digest "));
  for (const char* name : {"a", "c", "b"}) swapped.AddFile(name);
  CHECK(two.ToString(1).substr(two.ToString(1).size() - 8) !=
        swapped.ToString(1).substr(swapped.ToString(1).size() - 8));
}

}  // namespace
}  // namespace official::data
