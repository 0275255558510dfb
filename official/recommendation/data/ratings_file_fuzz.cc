// The input is a ratings file. In pieces it must be read as it is in one.
#include <algorithm>

#include "absl/strings/string_view.h"
#include "official/recommendation/data/ratings_file.h"
#include "utils/compute/core/check.h"
#include "utils/fuzzing/memory_file.h"
#include "utils/logs/log.h"

namespace {

absl::StatusOr<std::vector<official::recommendation::Rating>> ParseInPieces(absl::string_view text, size_t piece) {
  const auto read = [&](char* buffer, int64_t) -> absl::StatusOr<int64_t> {
    const absl::string_view bytes = text.substr(0, piece);
    bytes.copy(buffer, bytes.size());
    text.remove_prefix(bytes.size());
    return bytes.size();
  };
  return official::recommendation::ParseRatings("input", read, static_cast<int64_t>(text.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  official::logs::InitLogging({.format = official::logs::LogFormat::kNone});
  const absl::string_view text = official::fuzzing::AsBytes(data, size);
  const auto whole = ParseInPieces(text, 1 << 20);
  OFFICIAL_CHECK(whole.ok() || absl::IsDataLoss(whole.status())) << whole.status();
  const auto pieces = ParseInPieces(text, 1 + size % 7);
  OFFICIAL_CHECK(pieces.status() == whole.status()) << pieces.status() << " but " << whole.status();
  if (!whole.ok()) return 0;
  OFFICIAL_CHECK(*pieces == *whole);
  for (const auto& rating : *whole) OFFICIAL_CHECK(rating.user >= 1 && rating.item >= 1);
  return 0;
}
