#include "official/transformer/training_vocabulary.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

namespace official::transformer {
namespace {

using Catch::Matchers::Contains;

std::string NewDirectory() {
  static int counter = 0;
  const char* const root = std::getenv("TEST_TMPDIR");
  const std::string path = absl::StrCat(root == nullptr ? "/tmp" : root, "/data-", getpid(), "-", ++counter);
  REQUIRE(files::MakeDirectories(path).ok());
  return path;
}

std::string Write(const std::string& path, const std::string& lines) {
  REQUIRE(files::WriteFileAtomically(path, absl::StrCat("'<pad>'\n'<EOS>'\n", lines)).ok());
  return path;
}

TEST_CASE("A vocabulary is identified by what its ids stand for") {
  const std::string directory = NewDirectory();
  const auto digest = [&](const std::string& lines) {
    return FindVocabulary(Write(directory + "/v", lines), "").value()->digest;
  };
  const std::string expected = digest("'a_'\n'b_'\n");
  CHECK_THAT(expected, Contains("4 subtokens, digest "));
  CHECK(digest("\"a_\"\r\n'b_'") == expected);
  CHECK(digest("'b_'\n'a_'\n") != expected);
  CHECK(digest("'a_'\n'c_'\n") != expected);
  CHECK(digest("'a_b_'\n") != expected);
}

TEST_CASE("A training uses the vocabulary next to its data, or the one that is named") {
  const std::string data = NewDirectory(), elsewhere = NewDirectory();
  const std::string same = Write(elsewhere + "/same", "'a_'\n"), other = Write(elsewhere + "/other", "'b_'\n");
  CHECK_FALSE(FindVocabulary({}, data).value().has_value());
  CHECK_FALSE(FindVocabulary({}, data + "/none").value().has_value());
  CHECK(FindVocabulary(other, data).value()->path == other);
  const std::string there = Write(data + "/vocab.ende.100", "'a_'\n");
  Write(data + "/vocab.ende.100.incomplete-0123abcd", "'z_'\n");
  CHECK(FindVocabulary({}, data).value()->path == there);
  CHECK(FindVocabulary(same, data).value()->path == same);
  CHECK(FindVocabulary(other, "").value()->path == other);
  const absl::Status status = FindVocabulary(other, data).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(
      std::string(status.message()),
      Contains(absl::StrCat("--vocab_file=", other, " (3 subtokens, digest ")) &&
          Contains(absl::StrCat("is not the vocabulary that the data were made with; give --vocab_file=", there)));
  // One of several is not known until it is named.
  Write(data + "/vocab.ende.200", "'b_'\n");
  CHECK_FALSE(FindVocabulary({}, data).value().has_value());
  CHECK(FindVocabulary(other, data).value()->path == other);
}

TEST_CASE("A bad vocabulary next to the data is refused with its line") {
  const std::string data = NewDirectory();
  REQUIRE(files::WriteFileAtomically(data + "/vocab.ende.100", "'a_'\n").ok());
  const absl::Status status = FindVocabulary({}, data).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains(data + "/vocab.ende.100:1: found 'a_', expected '<pad>'"));
}

}  // namespace
}  // namespace official::transformer
