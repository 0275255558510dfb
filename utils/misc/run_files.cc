#include "utils/misc/run_files.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::misc {
namespace {

constexpr int64_t kMaxFileBytes = 16 << 20;

}  // namespace

absl::Status CopyRunFiles(const std::string& from, const std::string& to) {
  for (const absl::string_view name : kRunFiles) {
    const absl::StatusOr<std::string> text = files::ReadFile(files::JoinPath(from, name), kMaxFileBytes);
    if (absl::IsNotFound(text.status())) continue;
    RETURN_IF_ERROR(text.status());
    const std::string copy = files::JoinPath(to, name);
    const absl::StatusOr<std::string> present = files::ReadFile(copy, kMaxFileBytes);
    if (present.ok() && *present == *text) continue;
    RETURN_IF_ERROR(files::WriteFileAtomically(copy, *text));
  }
  return absl::OkStatus();
}

}  // namespace official::misc
