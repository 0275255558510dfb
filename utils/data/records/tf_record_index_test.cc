#include "utils/data/records/tf_record_index.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/crc32c.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

namespace official::data {
namespace {

using Catch::Contains;

std::string Path(const std::string& name) { return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name); }

std::string WriteRecords(const std::string& name, const std::vector<std::string>& records) {
  auto writer = TFRecordWriter::Open(Path(name)).value();
  for (const std::string& record : records) REQUIRE(writer->Write(record).ok());
  REQUIRE(writer->Close().ok());
  return Path(name);
}

void Rewrite(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST_CASE("Records of several files are read by their number, in any order") {
  const std::vector<std::string> paths = {WriteRecords("a", {"one", "", std::string(100000, 'x')}),
                                          WriteRecords("b", {}), WriteRecords("c", {"four"})};
  const TFRecordIndex index = TFRecordIndex::Build(paths).value();
  CHECK(index.num_records() == 4);
  std::string buffer;
  CHECK(index.Read(3, &buffer).value() == "four");
  CHECK(index.Read(0, &buffer).value() == "one");
  CHECK(index.Read(2, &buffer).value() == std::string(100000, 'x'));
  CHECK(index.Read(1, &buffer).value().empty());
  CHECK(index.Describe(2) == Path("a") + ": record 2 at offset 35");
  CHECK(index.Describe(3) == Path("c") + ": record 0 at offset 0");
}

TEST_CASE("How many files are searched for records is shown") {
  const std::vector<std::string> paths = {WriteRecords("first", {"one"}), WriteRecords("second", {"two"})};
  logs::CapturedTasks log;
  REQUIRE(TFRecordIndex::Build(paths).ok());
  CHECK_THAT(log.Text(),
             Contains("finding records   0% [") && Contains("finding records 100% [") && Contains("2/2 files"));
}

TEST_CASE("A damaged header or a cut file is found at once, with file, record and offset") {
  const std::string path = WriteRecords("damaged", {"one", "two"});
  const std::string bytes = files::ReadFile(path, 1000).value();
  const auto [spoiled, message] = GENERATE_COPY(table<std::string, std::string>({
      {bytes.substr(0, 19) + "x" + bytes.substr(20),
       "record 1 at offset 19: corrupted record: the checksum of its length"},
      {bytes.substr(0, 25), "record 1 at offset 19: truncated record: 6 of the 12 bytes of its header"},
      {bytes.substr(0, 37),
       "record 1 at offset 19: truncated record: 3 bytes and a checksum of 4 are announced, 6 bytes"},
      {bytes.substr(0, 33),
       "record 1 at offset 19: truncated record: 3 bytes and a checksum of 4 are announced, 2 bytes"},
      {"\x1f\x8b, and more of that",
       "record 0 at offset 0: not a TFRecord file: the file is gzip-compressed; unpack it with gunzip"},
  }));
  Rewrite(path, spoiled);
  const absl::Status status = TFRecordIndex::Build({WriteRecords("good", {"x"}), path}).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains(path + ": " + message));

  // What is before it can be read, if it may be left out.
  BadRecords bad(1);
  const std::string cache = Path("damaged.index");
  std::filesystem::remove(cache);
  for (int i = 0; i < 2; ++i) {  // the second time with a cache
    const TFRecordIndex index = TFRecordIndex::Build({WriteRecords("good", {"x"}), path}, cache, &bad).value();
    CHECK(index.num_records() == (Contains("record 1").match(message) ? 2 : 1));
    std::string buffer;
    if (index.num_records() == 2) CHECK(index.Read(1, &buffer).value() == "one");
  }
  CHECK(bad.count() == 1);
  const absl::Status more = TFRecordIndex::Build({path, WriteRecords("page", {"x"})}, "", &bad).status();
  CHECK(more.ok());
  Rewrite(Path("page"), "<html>no records</html>");
  CHECK_THAT(std::string(TFRecordIndex::Build({path, Path("page")}, "", &bad).status().message()),
             Contains("the file is an HTML page; what follows in the file cannot be read; more than "
                      "--skip_bad_records=1 records are damaged"));
}

TEST_CASE("Damaged data is found when it is read; the other records still can be") {
  const std::string path = WriteRecords("data", {"one", "two", "three"});
  std::string bytes = files::ReadFile(path, 1000).value();
  bytes[19 + 12] = 'T';
  Rewrite(path, bytes);
  const TFRecordIndex index = TFRecordIndex::Build({path}).value();
  std::string buffer;
  const absl::Status status = index.Read(1, &buffer).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains(path + ": record 1 at offset 19: corrupted record: the checksum of its 3 bytes is "));
  CHECK(index.Read(2, &buffer).value() == "three");
}

TEST_CASE("What is before the damage is reported") {
  const std::string path = WriteRecords("cut", {"one", "two"});
  Rewrite(path, files::ReadFile(path, 1000).value().substr(0, 30));
  std::vector<int64_t> offsets;
  CHECK_FALSE(FindTFRecords(*files::RandomAccessFile::Open(path).value(), &offsets).ok());
  CHECK(offsets == std::vector<int64_t>{0, 19});
}

TEST_CASE("A record that announces more than 1 GiB is refused before it is read") {
  // The length 2^30 + 1 and its checksum; the rest is a hole in the file.
  const std::string path = Path("sparse"), length("\x01\0\0\x40\0\0\0\0", 8);
  const uint32_t crc = files::MaskCrc(files::Crc32c(length));
  std::string header = length;
  for (int i = 0; i < 4; ++i) header.push_back(static_cast<char>(crc >> (8 * i)));
  Rewrite(path, header);
  std::filesystem::resize_file(path, 12 + (1 << 30) + 1 + 4);
  const absl::Status status = TFRecordIndex::Build({path}).status();
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == path + ": record 0 at offset 0: a record of 1073741825 bytes; at most 1073741824 are read");
}

TEST_CASE("A missing file is NotFound") { CHECK(absl::IsNotFound(TFRecordIndex::Build({Path("none")}).status())); }

// Spoils what only a search would read: the header of a file's second record, whose first has 3 bytes. Size and time of
// change stay.
void SpoilUnnoticed(const std::string& path) {
  const auto time = std::filesystem::last_write_time(path);
  std::string bytes = files::ReadFile(path, 1000).value();
  bytes[19 + 9] = '?';
  Rewrite(path, bytes);
  std::filesystem::last_write_time(path, time);
}

TEST_CASE("A cached index is used until a file changes, is missing or damaged") {
  const std::string a = WriteRecords("cached-a", {"one", "two"}), b = WriteRecords("cached-b", {"three", "four"});
  const std::string cache = Path("cache");
  std::filesystem::remove(cache);
  CHECK(TFRecordIndex::Build({a, b}, cache).value().num_records() == 4);
  SpoilUnnoticed(a);
  CHECK_FALSE(TFRecordIndex::Build({a, b}).ok());
  std::string buffer;
  const auto check_b = [&](const TFRecordIndex& index, int64_t i) {
    CHECK(index.num_records() == i + 1);
    CHECK(index.Read(i, &buffer).value() == "four");
  };
  const TFRecordIndex index = TFRecordIndex::Build({a, b}, cache).value();
  CHECK(index.Read(0, &buffer).value() == "one");
  CHECK(absl::IsDataLoss(index.Read(1, &buffer).status()));  // what is read is checked all the same
  check_b(index, 3);

  SECTION("a file that has grown") {
    WriteRecords("cached-b", {"three", "three", "four"});
    check_b(TFRecordIndex::Build({a, b}, cache).value(), 4);
    check_b(TFRecordIndex::Build({a, b}, cache).value(), 4);
  }
  SECTION("a file that has changed at the same size") {
    WriteRecords("cached-b", {"four", "three"});
    std::filesystem::last_write_time(b, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
    CHECK(TFRecordIndex::Build({a, b}, cache)->Read(3, &buffer).value() == "three");
  }
  SECTION("other files") {
    check_b(TFRecordIndex::Build({b}, cache).value(), 1);
    CHECK_FALSE(TFRecordIndex::Build({a, b}, cache).ok());
  }
  SECTION("in another order") { CHECK_FALSE(TFRecordIndex::Build({b, a}, cache).ok()); }
  SECTION("a missing cache") {
    std::filesystem::remove(cache);
    CHECK_FALSE(TFRecordIndex::Build({a, b}, cache).ok());
  }
  SECTION("a cut or damaged cache") {
    const std::string bytes = files::ReadFile(cache, 1000).value();
    for (size_t size = 0; size < bytes.size(); ++size) {
      Rewrite(cache, bytes.substr(0, size));
      CHECK_FALSE(TFRecordIndex::Build({a, b}, cache).ok());
      std::string damaged = bytes;
      damaged[size] ^= 1;
      Rewrite(cache, damaged);
      CHECK_FALSE(TFRecordIndex::Build({a, b}, cache).ok());
      Rewrite(cache, damaged);
      check_b(TFRecordIndex::Build({b}, cache).value(), 1);
    }
  }
  SECTION("a cache with whole records of nonsense") {
    WriteRecords("cache", {a, "nonsense", b, "numbers!"});
    CHECK_FALSE(TFRecordIndex::Build({a, b}, cache).ok());
  }
  SECTION("a cache that cannot be written") { check_b(TFRecordIndex::Build({b}, Path("no/cache")).value(), 1); }
}

}  // namespace
}  // namespace official::data
