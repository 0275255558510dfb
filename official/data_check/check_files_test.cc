// Files of every format: good ones, and each kind of damage with the words of its report.
#include "official/data_check/check_files.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "official/data_check/data_format.h"
#include "utils/data/jpeg_encoder.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/crc32c.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/protos/example.pb.h"

namespace official::data_check {
namespace {

using Catch::Contains;
using Catch::EndsWith;

std::string ImageRecord(int64_t label, const std::string& jpeg) {
  tensorflow::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  features["image/encoded"].mutable_bytes_list()->add_value(jpeg);
  features["image/class/label"].mutable_int64_list()->add_value(label);
  return example.SerializeAsString();
}

std::string SentenceRecord(const std::vector<int64_t>& inputs, const std::vector<int64_t>& targets) {
  tensorflow::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  features["inputs"].mutable_int64_list()->mutable_value()->Add(inputs.begin(), inputs.end());
  features["targets"].mutable_int64_list()->mutable_value()->Add(targets.begin(), targets.end());
  return example.SerializeAsString();
}

std::string BigEndian(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  }
  return bytes;
}

// An empty directory.
class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/check", ++number);
    REQUIRE(files::MakeDirectories(directory_).ok());
  }

 protected:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  std::string WriteRecords(const std::string& name, const std::vector<std::string>& records,
                           data::Compression compression = data::Compression::kNone) const {
    auto writer = data::TFRecordWriter::Open(Path(name), compression).value();
    for (const std::string& record : records) REQUIRE(writer->Write(record).ok());
    REQUIRE(writer->Close().ok());
    return Path(name);
  }
  void Flip(const std::string& path, int64_t offset) const {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(offset);
    const int byte = file.get();
    file.seekp(offset);
    file.put(static_cast<char>(byte ^ 1));
  }

  absl::StatusOr<CheckResult> Check(CheckOptions options) {
    bad_.clear();
    files_.clear();
    options.num_threads = 2;
    return CheckFiles(options, {.bad = [this](const BadRecord& bad) { bad_.push_back(bad); },
                                .file = [this](const CheckedFile& file) { files_.push_back(file); }});
  }
  absl::StatusOr<CheckResult> Check(const std::string& path) { return Check(CheckOptions{.paths = {path}}); }
  // The file is good, holds this, and has as many records.
  void CheckGood(const std::string& path, const std::string& contents, int64_t num_records) {
    INFO(path);
    REQUIRE(Check(path).value().num_bad == 0);
    REQUIRE(files_.size() == 1);
    CHECK(files_[0].path == path);
    CHECK(files_[0].contents == contents);
    CHECK(files_[0].num_records == num_records);
  }
  // The only bad thing.
  const BadRecord& OnlyBad(const std::string& path) {
    INFO(path);
    REQUIRE(Check(path).value().num_bad == 1);
    REQUIRE(bad_.size() == 1);
    CHECK(bad_[0].file == path);
    CHECK_THAT(bad_[0].message, Contains(path));
    return bad_[0];
  }

  std::string directory_;
  std::vector<BadRecord> bad_;      // of the last Check
  std::vector<CheckedFile> files_;  // of the last Check
};

TEST_CASE_METHOD(Fixture, "Every bad image record is reported, and the good ones between them read") {
  const std::string jpeg = data::SmoothJpeg({.height = 20, .width = 30});
  const std::vector<std::string> records = {ImageRecord(1, jpeg), ImageRecord(2, jpeg), ImageRecord(3, jpeg),
                                            ImageRecord(1, jpeg.substr(0, jpeg.size() / 2))};
  const std::string path = WriteRecords("train-00000-of-00001", records);
  const BadRecord cut = OnlyBad(path);
  const auto size = static_cast<int64_t>(records[0].size()) + 16;  // with header and trailer
  CHECK(cut.record == 3);
  CHECK(cut.offset == 3 * size);
  CHECK_THAT(cut.message, Contains(absl::StrCat(path, ": record 3 at offset ", 3 * size, ": ")));
  CHECK(files_.at(0).num_records == 4);
  CHECK(files_.at(0).num_bad == 1);

  CHECK(Check(CheckOptions{.paths = {path}, .num_classes = 3}).value().num_bad == 2);
  CHECK_THAT(bad_.at(0).message, EndsWith(": feature image/class/label: expected a label from 0 to 2, found 3"));
  // Without a number labels.txt decides.
  Write("labels.txt", "background\ncat\n");
  CHECK(Check(path).value().num_bad == 3);
  std::filesystem::remove(Path("labels.txt"));

  Flip(path, 100);
  CHECK(Check(path).value().num_bad == 2);
  CHECK_THAT(bad_.at(0).message, Contains(path + ": record 0 at offset 0: corrupted record: the checksum of its "));
  // A damaged length is the end, even that of the first record, when only the name says what the file is.
  Flip(path, 2 * size);
  CHECK(Check(path).value().num_records == 3);
  CHECK_THAT(bad_.at(1).message, Contains("record 2 at offset") && EndsWith("what follows in the file cannot be read"));
  Flip(path, 0);
  CHECK_THAT(OnlyBad(path).message, Contains("record 0 at offset 0"));
}

TEST_CASE_METHOD(Fixture, "How much is checked is shown") {
  const std::string path = Write("train.en", std::string(1'000'000, 'a') + "\n");
  logs::CapturedTasks log;
  REQUIRE(Check(path).ok());
  CHECK_THAT(log.Text(), Contains("checking   0% [") && Contains("checking 100% [") && Contains("1.0/1.0 MB"));
}

TEST_CASE_METHOD(Fixture, "A huge record in a file of holes is not read") {
  const std::string length("\0\0\0\xc0\0\0\0\0", 8);  // 3 GiB
  const uint32_t crc = files::MaskCrc(files::Crc32c(length));
  const std::string path = Write("train-00000-of-00001", length + std::string(reinterpret_cast<const char*>(&crc), 4));
  std::filesystem::resize_file(path, int64_t{4} << 30);
  CHECK_THAT(OnlyBad(path).message, Contains("record 0 at offset 0: a record of 3221225472 bytes; at most 1073741824"));
}

TEST_CASE_METHOD(Fixture, "Sentences are checked, compressed or not, against the vocabulary next to them") {
  const std::vector<std::string> records = {SentenceRecord({5, 1}, {6, 7, 1}), SentenceRecord({4, 1}, {8, 1})};
  const std::string path = WriteRecords("x-train-00001-of-00001", records);
  CheckGood(path, "TFRecord of sentence pairs", 2);
  CheckGood(WriteRecords("packed", records, data::Compression::kGzip),
            "TFRecord of sentence pairs, compressed: no training program reads it so", 2);
  std::string bytes = files::ReadFile(path, 1 << 20).value();
  uLongf size = compressBound(bytes.size());
  std::string zlib(size, 0);
  REQUIRE(compress(reinterpret_cast<Bytef*>(zlib.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                   bytes.size()) == Z_OK);
  const std::string cut = Write("zlib", zlib.substr(0, size));
  CheckGood(cut, "TFRecord of sentence pairs, compressed: no training program reads it so", 2);
  std::filesystem::resize_file(cut, size - 8);
  CHECK_THAT(OnlyBad(cut).message, Contains("the compressed data is cut off"));

  Write("vocab.6", "'<pad>'\n'<EOS>'\n'a_'\n'b_'\n'c_'\n'd_'\n'e_'\n'f_'\n");
  const BadRecord& large = OnlyBad(path);
  CHECK(large.record == 1);
  CHECK_THAT(large.message, EndsWith("feature targets has the id 8, but the vocabulary has 8 entries"));
  CHECK(Check(CheckOptions{.paths = {path}, .vocab_size = 9}).value().num_bad == 0);
  CHECK_THAT(OnlyBad(WriteRecords("empty", {records[0], SentenceRecord({1}, {})})).message,
             EndsWith("feature targets has no ids"));
  CheckGood(WriteRecords("other", {"some", "thing"}), "TFRecord of neither images nor sentence pairs", 2);
}

TEST_CASE_METHOD(Fixture, "IDX files: sizes, labels, and as many labels as images") {
  const std::string images = Write("t10k-images-idx3-ubyte", BigEndian({2051, 2, 28, 28}) + std::string(2 * 784, 7));
  CheckGood(images, "IDX of images", 2);
  const std::string labels = Write("t10k-labels-idx1-ubyte", BigEndian({2049, 3}) + std::string("\3\x0b\4"));
  const BadRecord bad = OnlyBad(labels);
  CHECK(bad.record == 1);
  CHECK(bad.offset == 9);
  CHECK_THAT(bad.message, Contains("expected labels from 0 to 9, found 11 at index 1"));
  CHECK(Check(directory_).value().num_bad == 2);
  CHECK(bad_.at(1).message == labels + " has 3 records, but " + images + ", which belongs to it, has 2");

  const gzFile packed = gzopen(Path("packed.gz").c_str(), "wb");
  const std::string good = BigEndian({2049, 3}) + std::string("\3\1\4");
  gzwrite(packed, good.data(), good.size());
  gzclose(packed);
  CheckGood(Path("packed.gz"), "IDX of labels", 3);
  CHECK_THAT(OnlyBad(Write("cut", BigEndian({2051, 2, 28, 28}) + "only this")).message,
             Contains("expected 1584 bytes (2 x 28 x 28), found 25"));
  CHECK_THAT(OnlyBad(Write("large", BigEndian({2051, 0x7fffffff, 28, 28}))).message, Contains("found 16"));
}

TEST_CASE_METHOD(Fixture, "CIFAR-10: labels, whole records") {
  std::string bytes;
  for (const char label : {'\0', '\5', '\x0a', '\1'}) bytes += label + std::string(3072, '\x80');
  const BadRecord bad = OnlyBad(Write("any_name", bytes));
  CHECK(bad.record == 2);
  CHECK(bad.offset == 2 * 3073);
  CHECK_THAT(bad.message, EndsWith("record 2: expected a label from 0 to 9, found 10"));
  CHECK(files_.at(0).num_records == 4);
  CHECK_THAT(OnlyBad(Write("test_batch.bin", bytes.substr(1))).message, Contains("expected a multiple of 3073 bytes"));
}

TEST_CASE_METHOD(Fixture, "Ratings: every bad line, to the end") {
  std::string text = "userId,movieId,rating,timestamp\n";
  for (int i = 1; i <= 40; ++i) absl::StrAppend(&text, i, ",", 2 * i, ",3.5,978300760\n");
  CheckGood(Write("mine.csv", text), "ratings", 40);
  const std::string path = Write("mine.csv", text + "7,0,3,1\n" + std::string(100000, '9') + "\n7,8,3,1\n7,8,3\n");
  CHECK(Check(path).value().num_bad == 3);
  CHECK(files_.at(0).num_records == 44);
  CHECK(bad_.at(0).line == 42);
  CHECK_THAT(bad_.at(0).message, Contains(path + " line 42: item \"0\" is not in 1 to 2147483647"));
  CHECK_THAT(bad_.at(1).message, Contains("line 43: has more than 1024 characters"));
  CHECK_THAT(bad_.at(2).message, Contains("line 45: expected user, item, rating and timestamp, with , between"));
  CHECK(Check(Write("ratings.dat", "some words\n")).value().num_bad == 2);  // the name tells what it is
  CHECK_THAT(bad_.at(0).message, Contains("ratings.dat line 1: expected four fields"));
  CHECK(bad_.at(1).message == Path("ratings.dat") + " has no ratings");
  CheckGood(Write("u.data", "1\t2\t3\t4\n"), "ratings", 1);
  CHECK_THAT(OnlyBad(Write("empty.zip", "PK\3\4 and no more")).message, Contains("is not a readable zip archive"));
}

TEST_CASE_METHOD(Fixture, "Vocabularies: every bad line, to the end") {
  const std::string good = "'<pad>'\n'<EOS>'\n'the_'\n\"it's_\"\n";
  CheckGood(Write("vocab.ende.4", good), "vocabulary", 4);
  CHECK(Check(Write("vocab.ende.4", good + "'the_'\nbare\n'\xff_'\n'on_'\n")).value().num_bad == 3);
  CHECK(files_.at(0).num_records == 8);
  CHECK_THAT(bad_.at(0).message, EndsWith(":5: the subtoken the_ is already in line 3"));
  CHECK(bad_.at(1).line == 6);
  CHECK_THAT(bad_.at(2).message, Contains(":7: byte 2 of the line, 0xff, is not UTF-8"));
}

TEST_CASE_METHOD(Fixture, "Text: UTF-8, and as many lines as its translation") {
  const std::string source = Write("train.en", "Two men .\nA dog .\n"),
                    target = Write("train.de", "Zwei M\xc3\xa4nner .\n");
  CheckGood(source, "text", 2);
  CHECK(Check(directory_).value().num_bad == 1);
  CHECK(bad_.at(0).message == source + " has 2 lines, but " + target + ", which belongs to it, has 1");
  Write("train.de", "Zwei M\xe4nner .\nEin Hund .\n");
  const BadRecord& latin1 = OnlyBad(target);
  CHECK(latin1.line == 1);
  CHECK_THAT(latin1.message, Contains(":1: byte 7 of the line, 0xe4, is not UTF-8"));
}

TEST_CASE_METHOD(Fixture, "A directory is searched for what programs read, and numbered files must be complete") {
  Write("README", "not data");
  Write("picture.png", "\x89PNG\r\n\x1a\n");
  for (const char* const name : {"index.css", "index.js", "index.html", "index.en", "a.py", "a.sh", "a.de"}) {
    Write(name, std::string(name) == "index.js" ? "one\ntwo\n" : "one\n");
  }
  CHECK(absl::IsNotFound(Check(directory_).status()));
  CHECK(absl::IsNotFound(Check(Path("none")).status()));
  const absl::Status picture = Check(Path("picture.png")).status();
  CHECK(absl::IsDataLoss(picture));
  CHECK_THAT(std::string(picture.message()), EndsWith("or text (the file is a PNG image)"));

  // Checkpoints and exports have numbered files, too, which say nothing of what they are.
  const std::string variables = Write("model.ckpt-5.data-00000-of-00001", "\1\2\3 any bytes");
  CHECK_THAT(std::string(Check(directory_).status().message()), Contains("holds no data files"));
  CHECK_THAT(std::string(Check(variables).status().message()), Contains("is in no format that the programs read"));

  std::filesystem::create_directories(Path("a/b"));
  WriteRecords("a/b/x-dev-00001-of-00001", {SentenceRecord({5, 1}, {6, 1})});
  WriteRecords("a/b/x-train-00002-of-00002", {SentenceRecord({5, 1}, {6, 1})});
  const CheckResult result = Check(directory_).value();
  CHECK(result.num_files == 2);
  CHECK(result.num_records == 2);
  CHECK(result.num_bad == 1);
  CHECK_THAT(bad_.at(0).message, Contains("is missing x-train-00001-of-00002"));
}

}  // namespace
}  // namespace official::data_check
