#include "utils/distribute/result_bytes.h"

#include "absl/strings/str_cat.h"

namespace official::distribute {
namespace {

// Each code at its own place: parts of frames are views.
constexpr char kCodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static_assert(sizeof kCodes == static_cast<size_t>(absl::StatusCode::kUnauthenticated) + 1);

}  // namespace

std::array<absl::string_view, 2> PackResult(const absl::StatusOr<std::string>& result) {
  const char* const code = &kCodes[static_cast<int>(result.status().code())];
  return {result.ok() ? absl::string_view(*result) : result.status().message(), {code, 1}};
}

absl::StatusOr<std::string> UnpackResult(std::string frame) {
  if (frame.empty()) return absl::DataLossError("the answer of another task is empty: it has no status");
  const int code = static_cast<unsigned char>(frame.back());
  frame.pop_back();
  if (code == 0) return frame;
  if (code < static_cast<int>(sizeof kCodes)) return absl::Status(static_cast<absl::StatusCode>(code), frame);
  return absl::DataLossError(absl::StrCat("the answer of another task ends with ", code, ", which is no status code"));
}

}  // namespace official::distribute
