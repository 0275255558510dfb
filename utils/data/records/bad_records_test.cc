#include "utils/data/records/bad_records.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "utils/logs/captured_log.h"

namespace official::data {
namespace {

using Catch::Contains;

const absl::Status kDamaged = absl::DataLossError("f: record 3 at offset 70: damaged");

TEST_CASE("So many records may be left out, each reported once, and not one more") {
  logs::CapturedLog log(logs::LogFormat::kSimple);
  BadRecords bad(2);
  CHECK(bad.Skip("f 3", kDamaged).ok());
  CHECK(bad.Skip("f 3", kDamaged).ok());  // in the next epoch
  CHECK(bad.count() == 1);
  CHECK(bad.Skip("f 4", kDamaged).ok());
  const absl::Status third = bad.Skip("f 5", kDamaged);
  CHECK(absl::IsDataLoss(third));
  CHECK(third.message() == "f: record 3 at offset 70: damaged; more than --skip_bad_records=2 records are damaged");
  CHECK(bad.Skip("f 4", kDamaged).ok());
  bad.Report();
  CHECK_THAT(log.Text(), Contains("skipped: f: record 3 at offset 70: damaged\n") &&
                             Contains("skipped 2 damaged records in all, of at most --skip_bad_records=2\n"));
}

TEST_CASE("Nothing is left out unless asked for, and no other error is") {
  BadRecords none;
  CHECK(none.Skip("f 3", kDamaged) == kDamaged);
  BadRecords some(5);
  const absl::Status broken_disk = absl::AbortedError("cannot read f: Input/output error");
  CHECK(some.Skip("f 3", broken_disk) == broken_disk);
  CHECK(some.count() == 0);
}

TEST_CASE("A flood of bad records does not flood the log") {
  logs::CapturedLog log(logs::LogFormat::kSimple);
  BadRecords bad(1000);
  for (int i = 0; i < 1000; ++i) CHECK(bad.Skip(absl::StrCat(i), kDamaged).ok());
  bad.Report();
  const std::string text = log.Text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 21);
}

}  // namespace
}  // namespace official::data
