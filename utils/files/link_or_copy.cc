#include "utils/files/link_or_copy.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::files {

absl::Status LinkOrCopy(const std::string& from, const std::string& to) {
  if (RetryInterrupted([&] { return link(from.c_str(), to.c_str()); }) == 0) return absl::OkStatus();
  // What a file system without links says, or one that has as many as it takes, or files of another user.
  const bool has_no_link =
      errno == EXDEV || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK;
  if (!has_no_link) return ErrnoStatus(errno, absl::StrCat("link ", from, " to"), to);
  ASSIGN_OR_RETURN(const auto source, RandomAccessFile::Open(from));
  ASSIGN_OR_RETURN(const auto copy, AtomicFile::Create(to));
  std::string bytes(size_t{1} << 20, '\0');
  for (int64_t offset = 0; offset < source->size();) {
    ASSIGN_OR_RETURN(const int64_t size, source->ReadSome(offset, static_cast<int64_t>(bytes.size()), bytes.data()));
    if (size == 0) return absl::DataLossError(absl::StrCat(from, " has become shorter while it was copied"));
    RETURN_IF_ERROR(copy->Append(absl::string_view(bytes.data(), size)));
    offset += size;
  }
  RETURN_IF_ERROR(copy->Finish());
  return copy->Publish();
}

}  // namespace official::files
