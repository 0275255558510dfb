#include "utils/data/records/tf_record_dataset.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/data/auto_shard.h"
#include "utils/data/records/tf_record.h"

namespace official::data {
namespace {

using compute::DType;
using Numbers = std::vector<int64_t>;

std::string WriteRecords(const std::string& name, const std::vector<std::string>& records) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  auto writer = TFRecordWriter::Open(path).value();
  for (const std::string& record : records) REQUIRE(writer->Write(record).ok());
  REQUIRE(writer->Close().ok());
  return path;
}

absl::StatusOr<DatasetPtr> NumbersOf(const std::vector<std::string>& paths) {
  return TFRecordDataset(paths, {.features = {{"", {DType::kInt64, {}}}}, .labels = {}},
                         [](absl::string_view record, const Example& out) {
                           if (absl::SimpleAtoi(record, out.features[0].data<int64_t>())) return absl::OkStatus();
                           return absl::DataLossError(absl::StrCat("\"", record, "\" is no number"));
                         });
}

Numbers All(const Dataset& dataset) {
  Numbers numbers;
  const Example example = MakeExample(dataset.spec());
  for (int64_t i = 0; i < dataset.num_examples(); ++i) {
    REQUIRE(dataset.Read(/*epoch=*/0, i, example).ok());
    numbers.push_back(*example.features[0].data<int64_t>());
  }
  return numbers;
}

TEST_CASE("The examples are the records of all files; a worker's are those of its files") {
  const DatasetPtr dataset =
      NumbersOf({WriteRecords("a", {"0", "1"}), WriteRecords("b", {"100"}), WriteRecords("c", {"200", "201"})}).value();
  CHECK(All(*dataset) == Numbers{0, 1, 100, 200, 201});
  CHECK(All(*ShardByFile(dataset, 2, 0).value()) == Numbers{0, 1, 200, 201});
  CHECK(All(*ShardByFile(dataset, 2, 1).value()) == Numbers{100});
  CHECK(absl::IsInvalidArgument(ShardByFile(dataset, 4, 0).status()));
}

TEST_CASE("A record that is not understood is named") {
  const std::string path = WriteRecords("bad", {"7", "seven"});
  const DatasetPtr dataset = NumbersOf({path}).value();
  const Example example = MakeExample(dataset->spec());
  CHECK(dataset->Read(/*epoch=*/0, /*index=*/1, example) ==
        absl::DataLossError(path + ": record 1 at offset 17: \"seven\" is no number"));
  CHECK_FALSE(NumbersOf({path + ".missing"}).ok());
}

}  // namespace
}  // namespace official::data
