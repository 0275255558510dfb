#include "utils/distribute/result_bytes.h"

#include <catch2/catch.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"

namespace official::distribute {
namespace {

std::string FrameOf(const absl::StatusOr<std::string>& result) { return absl::StrJoin(PackResult(result), ""); }

TEST_CASE("Values and errors come back from their bytes") {
  const std::string value("a\0b", 3);
  CHECK(FrameOf(value) == value + '\0');
  CHECK(PackResult(value)[0] == value);
  for (const std::string& text : {value, std::string()}) CHECK(UnpackResult(FrameOf(text)).value() == text);
  for (int code = 1; code <= 16; ++code) {
    const absl::Status error(static_cast<absl::StatusCode>(code), code % 2 == 0 ? "" : "no such rows");
    CHECK(UnpackResult(FrameOf(error)).status() == error);
  }
}

TEST_CASE("A value is not copied into its frame, nor out of it") {
  const absl::StatusOr<std::string> value = std::string(1000, 'v');
  CHECK(PackResult(value)[0].data() == value->data());
  std::string frame = FrameOf(value);
  const char* const data = frame.data();
  CHECK(UnpackResult(std::move(frame)).value().data() == data);
}

TEST_CASE("A frame without the code of a status is refused") {
  CHECK(UnpackResult("").status() == absl::DataLossError("the answer of another task is empty: it has no status"));
  CHECK(UnpackResult("v\x11").status() ==
        absl::DataLossError("the answer of another task ends with 17, which is no status code"));
  CHECK(UnpackResult("v\xff").status() ==
        absl::DataLossError("the answer of another task ends with 255, which is no status code"));
}

}  // namespace
}  // namespace official::distribute
