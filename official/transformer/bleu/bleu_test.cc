#include "official/transformer/bleu/bleu.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

namespace official::transformer {
namespace {

using Catch::Contains;

const std::string kDirectory = std::getenv("TEST_TMPDIR");
const std::string kReference = kDirectory + "/reference", kTranslation = kDirectory + "/translation";

absl::StatusOr<float> Bleu(absl::string_view reference, absl::string_view translation,
                           const BleuOptions& options = {}) {
  REQUIRE(files::WriteFileAtomically(kReference, reference).ok());
  REQUIRE(files::WriteFileAtomically(kTranslation, translation).ok());
  return FileBleu(kReference, kTranslation, options);
}

constexpr BleuOptions kUncased = {.case_sensitive = false};

// Expected: upstream's compute_bleu_test.py, and what upstream prints for its files.
TEST_CASE("Files of equal sentences have BLEU 100, others less") {
  CHECK(Bleu("Test 1 two 3\nmore tests!\n", "Test 1 two 3\nmore tests!\n").value() == 100);
  CHECK(Bleu("Test 1 two 3\nmore tests!\n", "test 1 two 3\nMore tests!\n", kUncased).value() == Approx(100));
  CHECK(Bleu("Test 1 two 3\nmore tests!", "test 1 two 3\nMore tests!").value() == Approx(51.69731));
  CHECK(Bleu("Testing\nmore tests!\n", "Dog\nCat\n").value() < 100);
}

TEST_CASE("Computing the BLEU of files is shown") {
  logs::CapturedTasks log;
  REQUIRE(Bleu("one\ntwo\n", "one\ntwo\n").ok());
  REQUIRE(Bleu("one\ntwo\n", "one\ntwo\n", kUncased).ok());
  CHECK_THAT(log.Text(),
             Contains("computing the cased BLEU of 2 lines") && Contains("computing the uncased BLEU of 2 lines"));
}

const char* const kReferences =
    "The quick brown fox jumps over the lazy dog.\nIt costs $3.50, doesn't it?\nGröße: 5-6 Zoll (ca. 15 "
    "cm).\nHello!\n";
const char* const kTranslations =
    "The quick brown Fox jumped over the lazy dog .\nIt cost $3.50, does it not?\nGröße: 5-6 zoll (etwa 15 "
    "cm)\nHello!\n";

TEST_CASE("BLEU is that of upstream's formula and, with its tokenizer, sacreBLEU's") {
  // Computed from the formula in Python.
  CHECK(Bleu(kReferences, kTranslations).value() == Approx(30.4580881));
  CHECK(Bleu(kReferences, kTranslations, kUncased).value() == Approx(45.0308692));
  // sacreBLEU 2.6.0.
  CHECK(Bleu(kReferences, kTranslations, {true, BleuTokenizer::k13a}).value() == Approx(40.3020468));
  CHECK(Bleu(kReferences, kTranslations, {false, BleuTokenizer::k13a}).value() == Approx(53.1462407));
}

TEST_CASE("sacreBLEU's score is 0 where no word matches or there are no 4-grams, upstream's is not") {
  const char* const reference = "the big dog\na cat sleeps\n";
  const char* const no_match = "one two three\nfour five six\n";
  const char* const no_4_grams = "a small dog\na cat sleeps\n";
  // The formula; sacreBLEU 2.6.0.
  CHECK(Bleu(reference, no_match).value() == Approx(13.432124));
  CHECK(Bleu(reference, no_match, {true, BleuTokenizer::k13a}).value() == 0);
  CHECK(Bleu(reference, no_4_grams).value() == Approx(63.894306));
  CHECK(Bleu(reference, no_4_grams, {true, BleuTokenizer::k13a}).value() == 0);
  // No match in four words and their 4-gram.
  CHECK(Bleu("a b c d\n", "e f g h\n").value() > 0);
  CHECK(Bleu("a b c d\n", "e f g h\n", {true, BleuTokenizer::k13a}).value() == 0);
}

TEST_CASE("BLEU of tokens smooths, punishes brevity and leaves out what there is none of") {
  using Sentences = std::vector<std::vector<int32_t>>;
  const auto bleu = [](const Sentences& references, const Sentences& translations) {
    return CorpusBleu(references, translations);
  };
  CHECK(bleu({{1, 2, 3}}, {{1, 2, 3}}) == 1);  // no 4-grams
  // 1/2 of a match in 2 words, 1/4 in 1 pair; half as long as it should be.
  CHECK(bleu({{1, 2, 3, 4}}, {{9, 9}}) == Approx(std::pow(0.25 * 0.25, 0.25) * std::exp(-1)));
  // A word counts as often as the reference has it: 4 of 5, 3 of 4 pairs, 2 of 3, 1 of 2; one word too few.
  CHECK(bleu({{1, 1, 2, 3, 4, 5}}, {{1, 1, 1, 2, 3}}) == Approx(0.54751825));  // the formula in Python
  CHECK(bleu({{1}}, {{}}) == 0);
  CHECK(bleu({{}, {1, 2}}, {{3}, {1, 2}}) == Approx(std::pow(2. / 3 * 1, 0.25)));
}

TEST_CASE("Lines are Python's, blank ones around the text do not count") {
  CHECK(Bleu("a b c d\ne f", "\n\na b c d\r\ne f\n\n").value() == 100);
  CHECK(Bleu("a b c d\n\ne f", "a b c d\n\ne f").value() == 100);
  CHECK(Bleu("a b c d\u2028e\x0c"
             "f\rg\u0085h",
             "a b c d\ne\nf\ng\nh")
            .value() == 100);
}

TEST_CASE("The first and the last translation may be empty") {
  const float last = Bleu("a b c d\ne\n", "a b c d\n\n").value();
  CHECK(last == TextBleu(std::vector<std::string>{"a b c d", "e"}, std::vector<std::string>{"a b c d", ""}, {}));
  CHECK(last > 0);
  CHECK(Bleu("e\na b c d\n", "\na b c d\n").value() == last);
  CHECK(absl::IsDataLoss(Bleu("a\nb\nc\n", "a\n\n").status()));
}

TEST_CASE("All translations may be empty") {
  CHECK(Bleu("a\nb\n", "\n\n").value() == 0);
  CHECK(Bleu("a\nb\n", "\n \n", {true, BleuTokenizer::k13a}).value() == 0);
  const absl::Status one_line = Bleu("a\nb\n", "\n").status();
  CHECK(absl::IsDataLoss(one_line));
  CHECK(one_line.message() == kTranslation + " has no sentences");
  CHECK(absl::IsDataLoss(Bleu("a\n", "").status()));
}

TEST_CASE("Files that do not belong together are refused") {
  const absl::Status unlike = Bleu("a\nb\nc\n", "a\nb\n").status();
  CHECK(absl::IsDataLoss(unlike));
  CHECK_THAT(
      std::string(unlike.message()),
      Contains(absl::StrCat("the reference ", kReference, " has 3 lines, the translation ", kTranslation, " has 2")));
  const absl::Status not_utf8 = Bleu("a\nb\n", "a\n\xe4\n").status();
  CHECK(absl::IsDataLoss(not_utf8));
  CHECK(not_utf8.message() == kTranslation + ":2: byte 0xe4 at offset 2 of the file is not UTF-8");
  CHECK(Bleu(" \n", "a\n").status().message() == kReference + " has no sentences");
  CHECK(absl::IsNotFound(FileBleu(kDirectory + "/none", kReference, {}).status()));
}

}  // namespace
}  // namespace official::transformer
