#include "official/transformer/text/unicode.h"

#include <catch2/catch.hpp>

namespace official::transformer {
namespace {

// Expected values: Python 3.11's unicodedata and str.
TEST_CASE("Characters have the categories that Python gives them") {
  for (const char32_t c : U"aZ09\u00df\u00b2\u0416\u4e2d\u0660\u2163\U0001d400") {
    if (c != 0) CHECK(IsAlphanumeric(c));
  }
  for (const char32_t c : U" _-.\\\u00ab\u2019\u0301\u200b\u20ac\U0001f600\n\x01") CHECK_FALSE(IsAlphanumeric(c));
  for (const char32_t c : {U'!', U'_', U'\\', U'\u00ab', U'\u2014', U'\u3002'}) CHECK(IsPunctuation(c));
  for (const char32_t c : {U'$', U'a', U' ', U'+', U'^', U'`', U'\u00a9'}) CHECK_FALSE(IsPunctuation(c));
  for (const char32_t c : {U'$', U'+', U'^', U'`', U'|', U'~', U'\u20ac', U'\u00a9'}) CHECK(IsSymbol(c));
  CHECK_FALSE(IsSymbol(U'%'));
  CHECK(IsDigit(U'\u0663'));
  CHECK_FALSE(IsDigit(U'\u00b2'));
}

TEST_CASE("Blanks are those of Python's str.isspace") {
  for (const char32_t c : {0x9, 0xa, 0xb, 0xc, 0xd, 0x1c, 0x1d, 0x1e, 0x1f, 0x20, 0x85, 0xa0, 0x1680, 0x2003, 0x2028,
                           0x2029, 0x202f, 0x205f, 0x3000}) {
    CHECK(IsSpace(c));
  }
  for (const char32_t c : {0x0, 0x8, 0xe, 0x1b, 0x61, 0x180e, 0x200b, 0xfeff}) CHECK_FALSE(IsSpace(c));
  CHECK(Strip("\u00a0\t a \u2003b\u3000\r\n") == "a \u2003b");
  CHECK(Strip(" \u2028 ").empty());
  CHECK(Strip("").empty());
}

TEST_CASE("The first byte that is not UTF-8 is found") {
  CHECK(FindInvalidUtf8("") == absl::string_view::npos);
  CHECK(FindInvalidUtf8("aä中😀") == absl::string_view::npos);
  CHECK(FindInvalidUtf8("ä\xff") == 2);
  CHECK(FindInvalidUtf8("ab\xe4\xb8") == 2);         // cut
  CHECK(FindInvalidUtf8("a\xc0\x80") == 1);          // overlong NUL
  CHECK(FindInvalidUtf8("a\xed\xa0\x80") == 1);      // a surrogate
  CHECK(FindInvalidUtf8("a\xf4\x90\x80\x80") == 1);  // above U+10FFFF
}

TEST_CASE("Characters go to UTF-8 and back") {
  std::string text;
  for (const char32_t c : {U'a', U'\u00e4', U'\u4e2d', U'\U0001f600'}) AppendCharacter(c, &text);
  CHECK(text == "aä中😀");
  CHECK(CountCharacters(text) == 4);
  size_t i = 1;
  CHECK(NextCharacter(text, &i) == U'ä');
  CHECK(i == 3);
}

TEST_CASE("Lower case is Python's, with its special letters") {
  CHECK(LowerCase("ABC Straße ÄÖ") == "abc straße äö");
  CHECK(LowerCase("ΟΔΟΣ Σ") == "οδος σ");
  CHECK(LowerCase("İ") == "i\u0307");
  CHECK(LowerCase(absl::string_view("A\0B", 3)) == absl::string_view("a\0b", 3));
}

}  // namespace
}  // namespace official::transformer
