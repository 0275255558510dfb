#include "utils/data/records/tf_record.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "absl/strings/escaping.h"
#include "utils/files/crc32c.h"
#include "utils/files/files.h"

namespace official::data {
namespace {

using Catch::Matchers::Contains;

std::string TestPath(const std::string& name) {
  const char* directory = std::getenv("TEST_TMPDIR");
  return files::JoinPath(directory ? directory : "/tmp", name);
}

std::string Hex(absl::string_view hex) { return absl::HexStringToBytes(hex); }

std::string WriteRecords(const std::vector<std::string>& records, Compression compression = Compression::kNone) {
  const std::string path = TestPath("records");
  auto writer = TFRecordWriter::Open(path, compression).value();
  for (const std::string& record : records) REQUIRE(writer->Write(record).ok());
  REQUIRE(writer->Close().ok());
  return path;
}

// The records of a file, and how reading ended.
struct Contents {
  std::vector<std::string> records;
  absl::Status status;
};

Contents ReadRecords(const std::string& path, Compression compression = Compression::kNone) {
  Contents contents;
  auto reader = TFRecordReader::Open(path, compression).value();
  std::string record;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    contents.status = more.status();
    if (!more.ok() || !*more) return contents;
    contents.records.push_back(record);
  }
}

Contents ReadBytes(const std::string& bytes, Compression compression = Compression::kNone) {
  const std::string path = TestPath("bytes");
  REQUIRE(files::WriteFileAtomically(path, bytes).ok());
  return ReadRecords(path, compression);
}

std::string Message(const Contents& contents) { return std::string(contents.status.message()); }

// The two records as TensorFlow writes them.
const std::string kEmptyRecord = Hex("000000000000000029039807d8ea82a2");
const std::string kHiRecord = Hex("020000000000000078270b34686913d60856");

TEST_CASE("Records have TensorFlow's bytes") {
  const std::string path = WriteRecords({"", "hi"});
  CHECK(files::ReadFile(path, 100).value() == kEmptyRecord + kHiRecord);
  CHECK(ReadRecords(path).records == std::vector<std::string>{"", "hi"});
}

TEST_CASE("Records of all sizes come back, compressed or not") {
  const Compression compression = GENERATE(Compression::kNone, Compression::kGzip);
  std::vector<std::string> records;
  for (int size : {0, 1, 12, 262143, 262144, 262145, 3000000, 5}) {
    records.emplace_back(size, static_cast<char>('a' + size % 26));
  }
  const Contents contents = ReadRecords(WriteRecords(records, compression), compression);
  CHECK(contents.status.ok());
  CHECK(contents.records == records);
}

TEST_CASE("Records can be read as soon as they are flushed") {
  const Compression compression = GENERATE(Compression::kNone, Compression::kGzip);
  const std::string path = TestPath("flushed");
  auto writer = TFRecordWriter::Open(path, compression).value();
  REQUIRE(writer->Write("one").ok());
  REQUIRE(writer->Flush().ok());
  std::string record;
  CHECK(TFRecordReader::Open(path, compression).value()->Next(&record).value());
  CHECK(record == "one");
}

TEST_CASE("An empty file has no records; several gzip members are one file") {
  CHECK(ReadBytes("").status.ok());
  CHECK(ReadBytes("", Compression::kGzip).status.ok());
  const std::string gzip = files::ReadFile(WriteRecords({"a", "b"}, Compression::kGzip), 1000).value();
  CHECK(ReadBytes(gzip + gzip, Compression::kGzip).records == std::vector<std::string>{"a", "b", "a", "b"});
}

TEST_CASE("Every cut is found and reported with file, record and offset") {
  const std::string bytes = kHiRecord + kEmptyRecord + kHiRecord;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Contents contents = ReadBytes(bytes.substr(0, size));
    const bool whole = size == 0 || size == 18 || size == 34;
    INFO(size);
    CHECK(contents.records.size() == (size < 18 ? 0 : size < 34 ? 1 : 2));
    CHECK(contents.status.ok() == whole);
    if (!whole) CHECK(absl::IsDataLoss(contents.status));
  }
  CHECK_THAT(Message(ReadBytes(bytes.substr(0, 40))),
             Contains("bytes: record 2 at offset 34: truncated record: 6 of the 12 bytes of its header"));
  CHECK_THAT(
      Message(ReadBytes(bytes.substr(0, 47))),
      Contains("record 2 at offset 34: truncated record: 2 bytes and a checksum of 4 are announced, 1 bytes follow"));
}

TEST_CASE("Every changed byte is found") {
  const std::string bytes = kHiRecord + kEmptyRecord;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 0x10;
    INFO(i);
    CHECK(absl::IsDataLoss(ReadBytes(changed).status));
  }
  std::string changed = bytes;
  changed[13] = 'o';
  CHECK_THAT(Message(ReadBytes(changed)),
             Contains("record 0 at offset 0: corrupted record: the checksum of its 2 bytes is"));
}

TEST_CASE("A huge length with a right checksum takes no memory") {
  std::string header("\0\0\0\0\0\0\0\x80", 8);  // 2^63
  const uint32_t crc = files::MaskCrc(files::Crc32c(header));
  header.append(reinterpret_cast<const char*>(&crc), 4);
  CHECK_THAT(Message(ReadBytes(header + "data")), Contains("9223372036854775808 bytes"));
  CHECK_THAT(Message(ReadBytes(header)), Contains("truncated record"));
}

TEST_CASE("Damaged or missing compression is reported") {
  std::string gzip = files::ReadFile(WriteRecords({"abc", "def"}, Compression::kGzip), 1000).value();
  CHECK_THAT(Message(ReadBytes(gzip)), Contains("the file is gzip-compressed; unpack it with gunzip"));
  CHECK_THAT(Message(ReadBytes(gzip.substr(0, gzip.size() - 9), Compression::kGzip)), Contains("is cut off"));
  CHECK_THAT(Message(ReadBytes(kHiRecord, Compression::kGzip)), Contains("is the file gzip-compressed at all?"));
  gzip[gzip.size() - 6] ^= 1;  // gzip's own checksum
  CHECK_THAT(Message(ReadBytes(gzip, Compression::kGzip)), Contains("incorrect data check"));
}

TEST_CASE("A file of another kind is called what it is") {
  CHECK_THAT(Message(ReadBytes("<!DOCTYPE html><html>not found</html>")),
             Contains("bytes: record 0 at offset 0: not a TFRecord file: the file is an HTML page"));
  CHECK_THAT(Message(ReadBytes("PK\x03\x04 and the rest of an archive")), Contains("the file is a zip archive"));
  CHECK_THAT(Message(ReadBytes(std::string(257, 'x') + "ustar")), Contains("the file is a tar archive"));
  CHECK_THAT(Message(ReadBytes("who knows what this is")), Contains("(the file is damaged or not a TFRecord file)"));
  // What follows good records is damage.
  CHECK_THAT(Message(ReadBytes(kHiRecord + "<!DOCTYPE html><html>")),
             Contains("record 1 at offset 18: corrupted record") && Contains("(the file is damaged)"));
}

TEST_CASE("Reading continues after a record with damaged data, but not after a damaged length") {
  std::string bytes = kHiRecord + kHiRecord + kEmptyRecord;
  bytes[18 + 12] ^= 1;
  const auto read = [](const std::string& bytes) {
    REQUIRE(files::WriteFileAtomically(TestPath("damaged"), bytes).ok());
    return TFRecordReader::Open(TestPath("damaged")).value();
  };
  const auto reader = read(bytes);
  std::string record;
  CHECK(reader->Next(&record).value());
  CHECK_THAT(std::string(reader->Next(&record).status().message()), Contains("record 1 at offset 18: "));
  CHECK(reader->can_go_on());
  CHECK(reader->Next(&record).value());
  CHECK(record.empty());
  CHECK_FALSE(reader->Next(&record).value());

  bytes[18] ^= 1;
  const auto lost = read(bytes);
  CHECK(lost->Next(&record).value());
  const absl::Status status = lost->Next(&record).status();
  CHECK_THAT(std::string(status.message()), Contains("record 1 at offset 18: "));
  CHECK_FALSE(lost->can_go_on());
  CHECK(lost->Next(&record).status() == status);
}

TEST_CASE("A missing file and a directory are refused") {
  CHECK(absl::IsNotFound(TFRecordReader::Open(TestPath("missing")).status()));
  CHECK(absl::IsNotFound(TFRecordReader::Open(TestPath("")).status()));
}

}  // namespace
}  // namespace official::data
