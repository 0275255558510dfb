#include "official/transformer/prepare/prepare.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/transformer/text/subtokenizer.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/protos/example.pb.h"

namespace official::transformer {
namespace {

using Catch::Contains;
using Ids = std::vector<int32_t>;

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/prepare", ++number);
    REQUIRE(files::MakeDirectories(directory_).ok());
    std::string english, german;
    for (int i = 0; i < 50; ++i) {
      absl::StrAppend(&english, "sentence number ", i, "\n");
      absl::StrAppend(&german, " Satz Nummer ", i, "\r\n");
    }
    options_.data_dir = directory_ + "/data";
    options_.train = {{Write("train.en", english)}, {Write("train.de", german)}};
    options_.eval = {{Write("val.en", "one\n\ntwo")}, {Write("val.de", "eins\n\nzwei")}};
    options_.vocabulary_name = "vocab.ende.100";
    options_.vocabulary.min_count = 6;
    options_.num_train_shards = 3;
  }

 protected:
  std::string Write(const std::string& name, absl::string_view contents) const {
    const std::string path = directory_ + "/" + name;
    REQUIRE(files::WriteFileAtomically(path, contents).ok());
    return path;
  }
  std::string InData(const std::string& name) const { return options_.data_dir + "/" + name; }
  void Prepare() const {
    const absl::Status status = PrepareData(options_).status();
    INFO(status);
    REQUIRE(status.ok());
  }
  std::string Bytes(const std::string& name) const { return files::ReadFile(InData(name), 1 << 20).value(); }
  std::vector<std::string> Names() const { return files::ListDirectory(options_.data_dir).value(); }
  // The ids of the features of a file's records.
  std::vector<std::pair<Ids, Ids>> Records(const std::string& name) const {
    auto reader = data::TFRecordReader::Open(InData(name)).value();
    std::vector<std::pair<Ids, Ids>> records;
    std::string record;
    while (reader->Next(&record).value()) {
      tensorflow::Example example;
      REQUIRE(example.ParseFromString(record));
      const auto& features = example.features().feature();
      REQUIRE(features.size() == 2);
      const auto ids = [&](const char* feature) {
        const auto& values = features.at(feature).int64_list().value();
        return Ids(values.begin(), values.end());
      };
      records.emplace_back(ids("inputs"), ids("targets"));
    }
    return records;
  }
  void CheckRefused(const std::string& message, absl::StatusCode code = absl::StatusCode::kDataLoss) const {
    const absl::Status status = PrepareData(options_).status();
    CHECK(status.code() == code);
    CHECK_THAT(std::string(status.message()), Contains(message));
  }

  std::string directory_;
  PrepareOptions options_;
};

TEST_CASE_METHOD(Fixture, "Sentences become records with upstream's names, spread and shuffled") {
  Prepare();
  CHECK(Names() == std::vector<std::string>{"prepared.txt", "vocab.ende.100", "wmt32k-dev-00001-of-00001",
                                            "wmt32k-train-00001-of-00003", "wmt32k-train-00002-of-00003",
                                            "wmt32k-train-00003-of-00003"});
  const Subtokenizer subtokenizer = Subtokenizer::Load(InData("vocab.ende.100")).value();
  const auto text = [&](const Ids& ids) {
    CHECK(ids.back() == 1);
    return subtokenizer.Decode(BeforeEos(ids));
  };
  std::vector<int> order;
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<bool> found(50);
    for (const auto& [inputs, targets] : Records(absl::StrFormat("wmt32k-train-%05d-of-00003", shard + 1))) {
      int number;
      REQUIRE(std::sscanf(text(inputs).c_str(), "sentence number %d", &number) == 1);
      CHECK(text(targets) == absl::StrCat("Satz Nummer ", number));  // without blanks and \r
      CHECK(number % 3 == shard);
      found[number] = true;
      order.push_back(number);
    }
    CHECK(std::count(found.begin(), found.end(), true) == (shard == 2 ? 16 : 17));
  }
  CHECK_FALSE(std::is_sorted(order.begin(), order.begin() + 17));
  // In order, with the empty line, which is EOS alone, and the last one, which has no newline.
  const auto eval = Records("wmt32k-dev-00001-of-00001");
  REQUIRE(eval.size() == 3);
  CHECK(text(eval[0].first) == "one");
  CHECK(eval[1] == std::pair(Ids{1}, Ids{1}));
  CHECK(text(eval[2].second) == "zwei");
}

TEST_CASE_METHOD(Fixture, "Each part of the work is shown") {
  logs::CapturedTasks log;
  Prepare();
  const std::string shown = log.Text();
  // Both languages of the training's 50 sentences, and of the evaluation's 3.
  CHECK_THAT(shown, Contains("checking the text, 100 lines") && Contains("checking the text, 6 lines"));
  CHECK_THAT(shown, Contains("counting words, 100 lines"));
  CHECK_THAT(shown, Contains("choosing the vocabulary's subtokens"));
  CHECK_THAT(shown, Contains("writing sentences 100% [") && Contains("50/50 sentences"));
  CHECK_THAT(shown, Contains("putting files in order   0% [") && Contains("0/3 files"));
}

TEST_CASE_METHOD(Fixture, "A search that finds no vocabulary of about the size is told with both sizes") {
  options_.vocabulary.min_count.reset();
  const auto log_of = [&](int64_t target_size) {
    options_.vocabulary.target_size = target_size;
    options_.vocabulary.threshold = target_size / 100;
    options_.data_dir = absl::StrCat(directory_, "/", target_size);
    logs::CapturedLog log(logs::LogFormat::kSimple);
    Prepare();
    return log.Text();
  };
  const std::string told = log_of(5000);
  const size_t size = Subtokenizer::Load(InData("vocab.ende.100")).value().vocab_size();
  CHECK_THAT(told, Contains(absl::StrCat("--vocab_size=5000 is not reached: with ", size, " entries")));
  CHECK_THAT(log_of(static_cast<int64_t>(size)), !Contains("--vocab_size"));
}

TEST_CASE("Files are named after the languages") {
  const auto names = [](const ParallelText& train) {
    const DataNames names = NamesFor(train, 8192);
    return names.vocabulary + " " + names.records;
  };
  CHECK(names({{"raw/train.en"}, {"raw/train.de"}}) == "vocab.ende.8192 wmt32k");
  CHECK(names({{"a.de-en.en", "b.en"}, {"a.de-en.de", "b.de"}}) == "vocab.ende.8192 wmt32k");
  CHECK(names({{"train.en"}, {"train.fr"}}) == "vocab.enfr.8192 en-fr");
  CHECK(names({{"train.de"}, {"train.en"}}) == "vocab.deen.8192 de-en");
  // In "devi-train-00001-of-00100" one would find the tag "dev".
  CHECK(names({{"train.de"}, {"train.vi"}}) == "vocab.devi.8192 de-vi");
  CHECK(names({{"source.txt"}, {"target.txt"}}) == "vocab.8192 text");
  CHECK(names({{"a.en", "b.fr"}, {"a.de", "b.de"}}) == "vocab.8192 text");
  CHECK(names({{"raw.en/source"}, {"raw.de/target"}}) == "vocab.8192 text");
}

TEST_CASE_METHOD(Fixture, "Records of other languages have other names") {
  options_.records = "en-fr";
  Prepare();
  CHECK(files::Exists(InData("en-fr-train-00003-of-00003")));
  CHECK(files::Exists(InData("en-fr-dev-00001-of-00001")));
}

TEST_CASE_METHOD(Fixture, "The same text makes the same bytes, another seed another order") {
  Prepare();
  const std::string first = Bytes("wmt32k-train-00002-of-00003"), vocabulary = Bytes("vocab.ende.100");
  options_.data_dir += "2";
  Prepare();
  CHECK(Bytes("wmt32k-train-00002-of-00003") == first);
  CHECK(Bytes("vocab.ende.100") == vocabulary);
  options_.data_dir += "3";
  options_.seed = 2;
  Prepare();
  CHECK(Bytes("wmt32k-train-00002-of-00003") != first);
  CHECK(Bytes("wmt32k-train-00002-of-00003").size() == first.size());
}

TEST_CASE_METHOD(Fixture, "A second run makes what is missing and touches nothing else") {
  Prepare();
  const std::string first = Bytes("wmt32k-train-00001-of-00003"), third = Bytes("wmt32k-train-00003-of-00003");
  const auto time = std::filesystem::last_write_time(InData("wmt32k-train-00001-of-00003"));
  std::filesystem::remove(InData("wmt32k-train-00003-of-00003"));
  REQUIRE(files::WriteFileAtomically(InData("wmt32k-train-00003-of-00003.incomplete-01234567"), "cut").ok());
  Prepare();
  CHECK(Bytes("wmt32k-train-00003-of-00003") == third);
  CHECK(Bytes("wmt32k-train-00001-of-00003") == first);
  CHECK(std::filesystem::last_write_time(InData("wmt32k-train-00001-of-00003")) == time);
  CHECK_FALSE(files::Exists(InData("wmt32k-train-00003-of-00003.incomplete-01234567")));
}

TEST_CASE_METHOD(Fixture, "Several files are one text after another") {
  options_.train.sources.push_back(Write("more.en", "hello\n"));
  options_.train.targets.push_back(Write("more.de", "hallo\n"));
  Prepare();
  CHECK(Records("wmt32k-train-00003-of-00003").size() == 17);  // sentence 50
}

TEST_CASE_METHOD(Fixture, "Odd lines are text like any other") {
  const std::string words = [] {
    std::string line;
    for (int i = 0; i < 10'000; ++i) line += "sentence ";
    return line;
  }();
  options_.eval = {{Write("odd.en", absl::StrCat(words, "\n", std::string("a\0b", 3), "\n", "\u2603\n"))},
                   {Write("odd.de", "a\nb\nc\n")}};
  Prepare();
  const auto records = Records("wmt32k-dev-00001-of-00001");
  const Subtokenizer subtokenizer = Subtokenizer::Load(InData("vocab.ende.100")).value();
  CHECK(records[0].first.size() == 10'001);
  CHECK(subtokenizer.Decode(BeforeEos(records[1].first)) == std::string("a\0b", 3));
  CHECK(subtokenizer.Decode(BeforeEos(records[2].first)) == "\u2603");
}

TEST_CASE_METHOD(Fixture, "Text that does not fit is refused, and leaves no records") {
  SECTION("unlike numbers of lines") {
    options_.train.targets = {Write("short.de", "a\nb\n")};
    CheckRefused(
        absl::StrCat(options_.train.sources[0], " has 50 lines, its translation ", directory_, "/short.de has 2"));
  }
  SECTION("not UTF-8") {
    options_.eval.targets = {Write("bytes.de", "a\nb\nc\xff\n")};
    CheckRefused("bytes.de:3: byte 2 of the line, 0xff, is not UTF-8");
  }
  SECTION("empty") {
    options_.eval = {{Write("empty.en", "")}, {Write("empty.de", "")}};
    CheckRefused("empty.en has no lines");
  }
  SECTION("missing") {
    options_.eval.sources = {directory_ + "/none.en"};
    CheckRefused("/none.en; name the text files with --raw_dir", absl::StatusCode::kNotFound);
    Write("none.en.gz", "");
    CheckRefused("/none.en, but its .gz: gunzip that; name", absl::StatusCode::kNotFound);
  }
  SECTION("not as many files") {
    options_.train.sources.push_back(options_.train.sources[0]);
    CheckRefused("found 2 files of sentences and 1 of their translations", absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(files::Exists(options_.data_dir));
}

TEST_CASE_METHOD(Fixture, "Files of other text or flags are not mixed") {
  Prepare();
  options_.vocabulary.min_count = 2;
  CheckRefused("/data holds files that were made from other text or with other flags, as " + InData("prepared.txt"),
               absl::StatusCode::kFailedPrecondition);
  options_.vocabulary.min_count = 6;
  Write("val.en", "one\n\ntwo\n");  // a byte longer
  CheckRefused("choose another --data_dir", absl::StatusCode::kFailedPrecondition);
  Write("val.en", "one\n\nTWO");  // of the same size
  CheckRefused("choose another --data_dir", absl::StatusCode::kFailedPrecondition);
  Write("val.en", "one\n\ntwo");
  Prepare();
}

TEST_CASE_METHOD(Fixture, "Data whose prepared.txt has no checksums stays usable") {
  Prepare();
  const std::string with_checksums = Bytes("prepared.txt");
  // Computed bit by bit in Python, of "one\n\ntwo\n".
  CHECK_THAT(with_checksums, Contains("eval source: val.en, 8 bytes, CRC-32C 5d0c37cb\n"));
  const std::string without = std::regex_replace(with_checksums, std::regex(", CRC-32C [0-9a-f]{8}"), "");
  CHECK(without.size() == with_checksums.size() - 4 * 18);
  REQUIRE(files::WriteFileAtomically(InData("prepared.txt"), without).ok());
  Prepare();
  CHECK(Bytes("prepared.txt") == without);
  Write("val.en", "one\n\ntwo\n");
  CheckRefused("choose another --data_dir", absl::StatusCode::kFailedPrecondition);
}

TEST_CASE_METHOD(Fixture, "Data of other languages is not mixed in, even if files are removed") {
  Prepare();
  options_.vocabulary_name = "vocab.enfr.100";
  options_.records = "en-fr";
  const auto check_refused = [&] {
    CheckRefused("made from other text or with other flags", absl::StatusCode::kFailedPrecondition);
  };
  SECTION("none") { check_refused(); }
  SECTION("the records") {
    for (const std::string& name : Names()) {
      if (name.find("-of-") != std::string::npos) std::filesystem::remove(InData(name));
    }
    REQUIRE(Names() == std::vector<std::string>{"prepared.txt", "vocab.ende.100"});
    check_refused();
  }
  SECTION("all but one file of records") {
    for (const std::string& name : Names()) {
      if (name != "prepared.txt" && name != "wmt32k-train-00002-of-00003") std::filesystem::remove(InData(name));
    }
    check_refused();
  }
  SECTION("all but the evaluation's records") {
    for (const std::string& name : Names()) {
      if (name != "prepared.txt" && name != "wmt32k-dev-00001-of-00001") std::filesystem::remove(InData(name));
    }
    check_refused();
  }
}

TEST_CASE_METHOD(Fixture, "Text that makes no vocabulary can be corrected in the same directory") {
  const ParallelText corrected = options_.train;
  options_.train = {{Write("blank.en", "\n\n")}, {Write("blank.de", "\n\n")}};
  CheckRefused("no text in " + directory_ + "/blank.en");
  options_.train = corrected;
  Prepare();
  CHECK(Names().size() == 6);
  CHECK_THAT(Bytes("prepared.txt"), Contains("train source: train.en, "));
}

TEST_CASE_METHOD(Fixture, "A vocabulary without one of the characters is refused with the line") {
  REQUIRE(files::MakeDirectories(options_.data_dir).ok());
  REQUIRE(files::WriteFileAtomically(InData("vocab.ende.100"), "'<pad>'\n'<EOS>'\n'a'\n'_'\n").ok());
  CheckRefused("train.en:1: the vocabulary cannot express sentence");
  CHECK(Names() == std::vector<std::string>{"prepared.txt", "vocab.ende.100"});
}

TEST_CASE_METHOD(Fixture, "A vocabulary without the reserved subtokens is refused with the line") {
  REQUIRE(files::MakeDirectories(options_.data_dir).ok());
  REQUIRE(files::WriteFileAtomically(InData("vocab.ende.100"), "'a'\n'_'\n").ok());
  CheckRefused("vocab.ende.100:1: found 'a', expected '<pad>'");
  CHECK(Names() == std::vector<std::string>{"prepared.txt", "vocab.ende.100"});
}

}  // namespace
}  // namespace official::transformer
