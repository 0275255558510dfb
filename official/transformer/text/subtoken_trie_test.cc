#include "official/transformer/text/subtoken_trie.h"

#include <catch2/catch.hpp>

namespace official::transformer {
namespace {

TEST_CASE("The longest string that a text begins with is found") {
  const std::vector<absl::string_view> strings = {"b", "abcd", "a", "ab", "ä", absl::string_view("\0x", 2)};
  const SubtokenTrie trie(strings);
  const auto match = [&](absl::string_view text) {
    const auto [id, length] = trie.LongestPrefix(text);
    if (length > 0) CHECK(strings[id].size() == length);
    return id;
  };
  CHECK(match("abc") == 3);  // goes on into abcd, and back
  CHECK(match("abcde") == 1);
  CHECK(match("ac") == 2);
  CHECK(match("ba") == 0);
  CHECK(match("ä") == 4);
  CHECK(match(absl::string_view("\0x", 2)) == 5);
  for (const absl::string_view none : {"", "c", "\xc3", "ö"}) {
    CHECK(match(none) == -1);
    CHECK(trie.LongestPrefix(none).length == 0);
  }
  CHECK(SubtokenTrie({}).LongestPrefix("a").length == 0);
}

}  // namespace
}  // namespace official::transformer
