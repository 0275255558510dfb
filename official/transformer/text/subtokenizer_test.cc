#include "official/transformer/text/subtokenizer.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/files/files.h"

namespace official::transformer {
namespace {

using Catch::Contains;
using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

const std::string kPath = absl::StrCat(std::getenv("TEST_TMPDIR"), "/vocabulary");

absl::StatusOr<Strings> Read(absl::string_view contents) {
  REQUIRE(files::WriteFileAtomically(kPath, contents).ok());
  return ReadVocabulary(kPath);
}

Ids Encode(const Subtokenizer& subtokenizer, absl::string_view text) {
  Ids ids;
  const absl::Status status = subtokenizer.Encode(text, &ids);
  INFO(status);
  REQUIRE(status.ok());
  return ids;
}

// Every character stands for itself.
Subtokenizer OfCharacters(absl::string_view characters) {
  Strings subtokens(std::begin(kReservedSubtokens), std::end(kReservedSubtokens));
  for (const char character : absl::StrCat(characters, "\\_u;0123456789")) subtokens.emplace_back(1, character);
  return Subtokenizer(subtokens);
}

// Source: upstream's tokenizer_test.py.
TEST_CASE("Upstream's example is encoded and decoded") {
  const Subtokenizer subtokenizer({"123_", "test", "ing_"});
  CHECK(Encode(subtokenizer, "testing 123") == Ids{1, 2, 0});
  CHECK(subtokenizer.Decode({1, 2, 0}) == "testing 123");
}

TEST_CASE("Any text comes back") {
  const Subtokenizer subtokenizer = OfCharacters("abc ");
  for (const std::string text : {"", " ", "abc cab", "a_b\\c", "Größe: 5 €/m² 😀", "a\nb\r\nc", " a  b "}) {
    CHECK(subtokenizer.Decode(Encode(subtokenizer, text)) == text);
  }
  const std::string with_nul("a\0 \0b", 5);
  CHECK(subtokenizer.Decode(Encode(subtokenizer, with_nul)) == with_nul);
}

TEST_CASE("The longest subtoken is taken, from the left") {
  const Subtokenizer subtokenizer({"a", "b", "c", "ab", "bcd", "_"});
  CHECK(Encode(subtokenizer, "abc") == Ids{3, 2, 5});  // not a, bc...
}

TEST_CASE("Decoding leaves out what is not an id, and empty tokens") {
  const Subtokenizer subtokenizer({"a_", "b_", "_", "\\5"});
  CHECK(subtokenizer.Decode({}).empty());
  CHECK(subtokenizer.Decode({0, 4, -1, 2, 2, 1, 3}) == "a b\\5");
  CHECK(BeforeEos({5, 6, 1, 7, 1}) == absl::Span<const int32_t>({5, 6}));
  CHECK(BeforeEos({5}) == absl::Span<const int32_t>({5}));
}

TEST_CASE("Text that cannot be encoded is refused") {
  Ids ids;
  const Subtokenizer subtokenizer({"a", "b", "_"});
  const absl::Status lacking = subtokenizer.Encode("ab xb", &ids);
  CHECK(absl::IsDataLoss(lacking));
  CHECK_THAT(std::string(lacking.message()), Contains("cannot express x") && Contains("prepare_data_main"));
  const absl::Status not_utf8 = subtokenizer.Encode("ab\xff", &ids);
  CHECK(absl::IsDataLoss(not_utf8));
  CHECK(not_utf8.message() == "byte 3 of the text, 0xff, is not UTF-8");
}

TEST_CASE("A line of many words and a very long word take time in proportion to their length") {
  const Subtokenizer subtokenizer = OfCharacters("ab ");
  std::string line;
  for (int i = 0; i < 10'000; ++i) line += "abab ";
  CHECK(Encode(subtokenizer, line).size() == 50'000 + 2);  // four letters and _; the last space and its _
  const std::string word(4 << 20, 'a');                    // quadratic time would be hours
  CHECK(Encode(subtokenizer, word).size() == word.size() + 1);
}

TEST_CASE("A vocabulary file is read by lines, without quotes") {
  const Strings expected = {"<pad>", "<EOS>", "the_", "'", "ä", " "};
  CHECK(Read("'<pad>'\n'<EOS>'\n'the_'\n'''\n'ä'\n' '\n").value() == expected);
  CHECK(Read("'<pad>'\n'<EOS>'\n'the_'\n'''\n'ä'\n' '").value() == expected);  // no final newline
  // CRLF, blanks, other quotes
  CHECK(Read("\"<pad>\"\r\n'<EOS>'\r\n'the_'\r\n  '''\t\r\n\"ä\"\r\n' '\r\n").value() == expected);
  REQUIRE(WriteVocabulary(kPath, expected).ok());
  CHECK(files::ReadFile(kPath, 100).value() == "'<pad>'\n'<EOS>'\n'the_'\n'''\n'ä'\n' '\n");
  CHECK(ReadVocabulary(kPath).value() == expected);
}

TEST_CASE("A bad vocabulary file is refused with its line") {
  CHECK(absl::IsNotFound(ReadVocabulary(kPath + ".none").status()));
  const std::pair<absl::string_view, std::string> cases[] = {
      {"'<pad>'\n'<EOS>'\n'a'\n'b'\n'a'\n", ":5: the subtoken a is already in line 3"},
      {"'<pad>'\n'<EOS>'\n'a'\n'<pad>'\n", ":4: the subtoken <pad> is already in line 1"},
      {"'<pad>'\n'<EOS>'\n'a'\nb\n", ":4: found b, expected a subtoken in quotes, such as 'the_'"},
      {"'<pad>'\n''\n", ":2: found \\'\\', expected a subtoken in quotes"},
      {"'<pad>'\n\n", ":2: found , expected a subtoken in quotes"},
      {"'a\"\n", ":1: found \\'a\\\", expected"},
      {"'<pad>'\n'\xff'\n", ":2: byte 2 of the line, 0xff, is not UTF-8"},
      {"'the_'\n'a'\n", ":1: found 'the_', expected '<pad>': the first lines"},
      {"'<pad>'\n'the_'\n", ":2: found 'the_', expected '<EOS>': the first lines"},
      {"'<pad>_'\n'<EOS>_'\n'the_'\n", ":1: found '<pad>_', expected '<pad>'"},
      {"'<EOS>'\n'<pad>'\n'the_'\n", ":1: found '<EOS>', expected '<pad>'"},
      {"", " lists no subtokens"},
      {"'<pad>'\n", " lists no subtokens"},
      {"'<pad>'\n'<EOS>'\n", " lists no subtokens"},
  };
  for (const auto& [contents, message] : cases) {
    const absl::Status status = Read(contents).status();
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()), Contains(absl::StrCat(kPath, message)));
  }
}

}  // namespace
}  // namespace official::transformer
