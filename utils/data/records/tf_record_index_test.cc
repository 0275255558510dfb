#include "utils/data/records/tf_record_index.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"

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
  const TFRecordIndex index = TFRecordIndex::Build(paths, GENERATE(1, 3)).value();
  CHECK(index.num_records() == 4);
  std::string buffer;
  CHECK(index.Read(3, &buffer).value() == "four");
  CHECK(index.Read(0, &buffer).value() == "one");
  CHECK(index.Read(2, &buffer).value() == std::string(100000, 'x'));
  CHECK(index.Read(1, &buffer).value().empty());
  CHECK(index.Describe(2) == Path("a") + ": record 2 at offset 35");
  CHECK(index.Describe(3) == Path("c") + ": record 0 at offset 0");
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
      {"\x1f\x8b, and more of that", "record 0 at offset 0: corrupted record: the checksum of its length"},
  }));
  Rewrite(path, spoiled);
  const absl::Status status = TFRecordIndex::Build({WriteRecords("good", {"x"}), path}, 2).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains(path + ": " + message));
}

TEST_CASE("Damaged data is found when it is read; the other records still can be") {
  const std::string path = WriteRecords("data", {"one", "two", "three"});
  std::string bytes = files::ReadFile(path, 1000).value();
  bytes[19 + 12] = 'T';
  Rewrite(path, bytes);
  const TFRecordIndex index = TFRecordIndex::Build({path}, 1).value();
  std::string buffer;
  const absl::Status status = index.Read(1, &buffer).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains(path + ": record 1 at offset 19: corrupted record: the checksum of its 3 bytes is "));
  CHECK(index.Read(2, &buffer).value() == "three");
}

TEST_CASE("What lies before the damage is told") {
  const std::string path = WriteRecords("cut", {"one", "two"});
  Rewrite(path, files::ReadFile(path, 1000).value().substr(0, 30));
  std::vector<int64_t> offsets;
  CHECK_FALSE(FindTFRecords(*files::RandomAccessFile::Open(path).value(), &offsets).ok());
  CHECK(offsets == std::vector<int64_t>{0, 19});
}

TEST_CASE("A missing file is NotFound") { CHECK(absl::IsNotFound(TFRecordIndex::Build({Path("none")}, 1).status())); }

}  // namespace
}  // namespace official::data
