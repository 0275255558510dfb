#include "official/transformer/text/tokens.h"

#include <catch2/catch.hpp>

namespace official::transformer {
namespace {

using Strings = std::vector<std::string>;

Strings Split(absl::string_view text) {
  Strings tokens;
  for (const absl::string_view token : SplitIntoTokens(text)) tokens.emplace_back(token);
  return tokens;
}

std::string Escape(absl::string_view token, absl::string_view characters) {
  Alphabet alphabet;
  AddCharacters(characters, &alphabet);
  std::string escaped;
  AppendEscaped(token, alphabet, &escaped);
  return escaped;
}

// Expected values without a note: upstream's tokenizer_test.py.
TEST_CASE("Text is split where letters and digits begin and end") {
  CHECK(Split("test? testing 123.") == Strings{"test", "? ", "testing", "123", "."});
  CHECK(JoinTokens({"test", "? ", "testing", "123", "."}) == "test? testing 123.");
  // By the rules.
  CHECK(Split("") == Strings{});
  CHECK(Split(" ") == Strings{" "});
  CHECK(Split(" a b ") == Strings{" ", "a", "b", " "});
  CHECK(Split("a  b") == Strings{"a", "  ", "b"});
  CHECK(Split("Größe³-中文 😀x") == Strings{"Größe³", "-", "中文", " 😀", "x"});
}

TEST_CASE("Joining undoes splitting") {
  for (const std::string text : {"test? testing 123.", " a b ", "a  b", "\n x_y\\ ", "Größe: 5 €/m²", " ", "", "a "}) {
    CHECK(JoinTokens(Split(text)) == text);
  }
}

TEST_CASE("Escaped tokens consist of the alphabet") {
  CHECK(Escape("abc_\\4", "abc_\\u;") == "abc\\u\\\\\\52;_");
  CHECK(Escape("a\nb", "ab\n") == "a\\10;b_");  // a newline even if it is in the alphabet
  CHECK(Escape("😀", "") == "\\128512;_");
  CHECK(Escape("", "") == "_");
}

TEST_CASE("Unescaping gives the token back") {
  CHECK(Unescape("Underline: \\u, Backslash: \\\\, Unicode: \\52;") == "Underline: _, Backslash: \\, Unicode: 4");
  CHECK(Unescape("\\128512;") == "😀");
  CHECK(Unescape("\\0;") == std::string(1, '\0'));
  // No character: above U+10FFFF, too large for any number, a surrogate.
  CHECK(Unescape("\\1114112;") == "〓");
  CHECK(Unescape("\\99999999999999999999;") == "〓");
  CHECK(Unescape("\\55296;") == "〓");
  // What is no escape stays.
  for (const char* text : {"\\", "\\x", "\\52", "\\;", "\\ 52;", "a\\", "\\5x;"}) CHECK(Unescape(text) == text);
}

}  // namespace
}  // namespace official::transformer
