#include "official/transformer/text/vocabulary_builder.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "official/transformer/text/subtokenizer.h"
#include "official/transformer/text/unicode.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/files/files.h"

namespace official::transformer {
namespace {

using Catch::Contains;
using Strings = std::vector<std::string>;

std::string Path(const std::string& name) { return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name); }

std::string Write(const std::string& name, absl::string_view contents) {
  REQUIRE(files::WriteFileAtomically(Path(name), contents).ok());
  return Path(name);
}

std::string ThreeLines() { return Write("three", "the cat sat on the mat\nthe cat ate the rat\nthat rat sat\n"); }

// Source: upstream under TensorFlow 1.10.
TEST_CASE("The vocabulary of three lines is upstream's") {
  const auto vocabulary = [](int64_t min_count) {
    Strings subtokens = GenerateSubtokens(CountTokens({ThreeLines()}, 1000).value(), min_count);
    CHECK(subtokens[0] == "<pad>");
    CHECK(subtokens[1] == "<EOS>");
    subtokens.erase(subtokens.begin(), subtokens.begin() + 2);
    return absl::StrJoin(subtokens, " ");
  };
  CHECK(vocabulary(1) ==
        "the_ sat_ rat_ cat_ that_ on_ mat_ ate_ u t s r p o n m h e d c a _ \\ S O E > < ; 9 8 7 6 5 4 3 2 1 0");
  CHECK(vocabulary(2) == "the_ t sat_ rat_ cat_ at_ _ o n m h e a u s r p d c \\ S O E > < ; 9 8 7 6 5 4 3 2 1 0");
  CHECK(vocabulary(3) == "at_ the_ t s r c _ o n m h e a u p d \\ S O E > < ; 9 8 7 6 5 4 3 2 1 0");
  CHECK(vocabulary(5) == "at_ th e_ s r c t o n m a _ u p h e d \\ S O E > < ; 9 8 7 6 5 4 3 2 1 0");
}

// Source: upstream under TensorFlow 1.10, too.
TEST_CASE("The vocabulary of three lines encodes as upstream's") {
  VocabularyOptions options;
  options.min_count = 2;
  const Subtokenizer subtokenizer(BuildVocabulary({ThreeLines()}, options).value());
  const auto encode = [&](const std::string& text) {
    std::vector<int32_t> ids;
    REQUIRE(subtokenizer.Encode(text, &ids).ok());
    CHECK(subtokenizer.Decode(ids) == text);
    return absl::StrJoin(ids, " ");
  };
  CHECK(encode("the cat") == "2 6");
  CHECK(encode("The_cat \\ 7") == "21 29 33 27 12 13 8 21 15 8 6 21 34 35 27 21 21 21 34 35 27 8 30 8");
  CHECK(encode("that mat!") == "3 12 7 11 7 21 34 34 27 8");
}

// Source: upstream's tokenizer_test.py.
TEST_CASE("Whatever occurs too rarely is left to its characters") {
  const Strings subtokens = GenerateSubtokens({{"ab", 1}, {"bc", 3}, {"abc", 5}}, /*min_count=*/100, 1);
  CHECK(Strings(subtokens.begin(), subtokens.begin() + 2) == Strings{"<pad>", "<EOS>"});
  for (const std::string character : {"a", "b", "c", "\\", "_", "u", ";", "0", "9"}) {
    CHECK(std::count(subtokens.begin(), subtokens.end(), character) == 1);
  }
  const Strings translate = GenerateSubtokens({{"translate", 10}, {"t", 40}, {"tr", 16}, {"tra", 12}}, 5);
  CHECK(std::count(translate.begin(), translate.end(), "translate_") == 1);
  CHECK(std::count(translate.begin(), translate.end(), "tra") == 0);  // tra_ and translate_ are all there is of it
}

// The algorithm as it is described: all strings from the beginning of a segment on are counted, one by one.
class Plainly {
 public:
  static Strings Generate(const TokenCounts& token_counts, int64_t min_count) {
    Alphabet alphabet = AlphabetOf({});
    for (const auto& [token, count] : token_counts) AddCharacters(token, &alphabet);
    std::set<std::u32string> reserved, known;
    for (const absl::string_view text : kReservedSubtokens) reserved.insert(Characters(text));
    std::set<std::u32string> singles;
    for (const char32_t character : alphabet) singles.insert(std::u32string(1, character));
    known = reserved;
    known.insert(singles.begin(), singles.end());
    size_t max_length = 1;
    std::vector<std::pair<int64_t, std::u32string>> list;
    for (int iteration = 0; iteration < 4; ++iteration) {
      std::map<std::u32string, int64_t> counts;
      for (const auto& [token, count] : token_counts) {
        std::string escaped;
        AppendEscaped(token, alphabet, &escaped);
        const std::u32string text = Characters(escaped);
        for (size_t begin = 0; begin < text.size();) {
          for (size_t length = 1; begin + length <= text.size(); ++length) counts[text.substr(begin, length)] += count;
          size_t length = std::min(max_length, text.size() - begin);
          while (!known.contains(text.substr(begin, length))) --length;
          begin += length;
        }
      }
      std::map<size_t, Strings32, std::greater<>> by_length;
      for (const auto& [text, count] : counts) {
        if (count >= min_count) by_length[text.size()].push_back(text);
      }
      max_length = by_length.empty() ? 1 : by_length.begin()->first;
      list.clear();
      for (const auto& [length, texts] : by_length) {
        for (const std::u32string& text : texts) {
          const int64_t count = counts[text];
          if (count < min_count) continue;
          if (!singles.contains(text) && !reserved.contains(text)) list.emplace_back(count, text);
          for (size_t prefix = 1; prefix < length; ++prefix) counts[text.substr(0, prefix)] -= count;
        }
      }
      for (const std::u32string& single : singles) list.emplace_back(counts[single], single);
      std::sort(list.begin(), list.end(), std::greater<>());
      known = reserved;
      for (const auto& [count, text] : list) known.insert(text);
    }
    Strings subtokens(std::begin(kReservedSubtokens), std::end(kReservedSubtokens));
    for (const auto& [count, text] : list) {
      subtokens.emplace_back();
      for (const char32_t character : text) AppendCharacter(character, &subtokens.back());
    }
    return subtokens;
  }

 private:
  using Strings32 = std::vector<std::u32string>;
  static std::u32string Characters(absl::string_view text) {
    std::u32string characters;
    for (size_t i = 0; i < text.size();) characters += NextCharacter(text, &i);
    return characters;
  }
};

TEST_CASE("The tree of suffixes gives what counting each string gives") {
  // Few characters, so that strings recur; some share bytes: ä and ö, 中 and 丮 (three bytes), <pad> is reserved.
  const Strings alphabets[] = {
      {"a", "b"}, {"a", "b", "ä", "ö"}, {"中", "丮", "並", "😀", "😁"}, {"<pad>", "<EOS>", "<", "_"}};
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const Strings& alphabet = alphabets[i % std::size(alphabets)];
    TokenCounts token_counts;
    for (int token = 0; token < 1 + i % 12; ++token) {
      std::string text;
      for (int length = 1 + random() % 9; length > 0; --length) text += alphabet[random() % alphabet.size()];
      token_counts[text] += 1 + random() % 4;
    }
    const int64_t min_count = 1 + random() % 6;
    CAPTURE(i, min_count);
    CHECK(GenerateSubtokens(token_counts, min_count) == Plainly::Generate(token_counts, min_count));
  }
}

TEST_CASE("A long word does not take quadratic memory, nor unequal strings quadratic time") {
  std::string random_word;
  std::mt19937 random(1);
  for (int i = 0; i < 300'000; ++i) random_word += static_cast<char>('a' + random() % 26);
  // Quadratic: 4 times 45 billion strings.
  CHECK(GenerateSubtokens({{random_word, 1}, {"abc", 5}}, /*min_count=*/6).size() > 41);
  CHECK(GenerateSubtokens({{random_word, 7}}, /*min_count=*/6)[2] == random_word + "_");
  CHECK(GenerateSubtokens({{std::string(3000, 'a'), 1}}, /*min_count=*/1000).size() < 50);
}

TEST_CASE("Lines are sampled as upstream does") {
  // 60 bytes, at most 10 characters: int(60 / 20) = 3 lines are skipped before each that is used.
  std::string text;
  for (const char c : absl::string_view("abcdefghijkl")) text += std::string(3, c) + " \n";
  const TokenCounts counts = CountTokens({Write("lines", text)}, 10).value();
  CHECK(counts == TokenCounts{{"ddd", 1}, {"hhh", 1}, {"lll", 1}});
  // The characters are counted, not the bytes; the line that goes beyond is still used.
  const TokenCounts umlauts = CountTokens({Write("umlauts", "ääää\nöööö\nüüüü\nßßßß\n")}, 10).value();
  CHECK(umlauts == TokenCounts{{"öööö", 1}, {"ßßßß", 1}});
  const TokenCounts all =
      CountTokens({Write("three", "a b\n\n  b c\t\n"), Write("nul", std::string("a\0b", 3))}, 100).value();
  CHECK(all == TokenCounts{{"a", 2}, {"b", 3}, {"c", 1}, {std::string(1, '\0'), 1}});
}

TEST_CASE("The bisection ends near the target, or as near as it can") {
  const auto size = [](int64_t target, int64_t threshold) {
    VocabularyOptions options;
    options.target_size = target;
    options.threshold = threshold;
    return BuildVocabulary({ThreeLines()}, options).value().size();
  };
  // Always too small: min_count 500, 250, 125, 62, 31, 15, 7, 3 and 1, of which the last is the nearest.
  CHECK(size(1000, 327) == 41);
  CHECK(size(40, 1) == 41);
  CHECK(size(38, 1) == 35);   // min_count 3 and 1 are equally near: the first
  CHECK(size(1, 327) == 33);  // min_count 500 is near enough
}

TEST_CASE("Files without text and files that are none are refused") {
  const std::string empty = Write("empty", ""), blank = Write("blank", "\n \n");
  const absl::Status status = BuildVocabulary({empty, blank}, {}).status();
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == absl::StrCat("no text in ", empty, ", ", blank));
  CHECK(absl::IsNotFound(BuildVocabulary({empty, Path("none")}, {}).status()));
  CHECK_THAT(std::string(BuildVocabulary({Write("bytes", "a\n\xff\n")}, {}).status().message()),
             Contains("bytes:2: byte 1 of the line, 0xff, is not UTF-8"));
}

}  // namespace
}  // namespace official::transformer
