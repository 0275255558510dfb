#include "utils/files/file_lock.h"

#include <sys/file.h>

#include <cerrno>

#include "utils/files/files.h"

namespace official::files {

absl::StatusOr<LockResult> TryLock(int fd, const std::string& path) {
  if (RetryInterrupted([&] { return flock(fd, LOCK_EX | LOCK_NB); }) == 0) return LockResult::kLocked;
  if (errno == EWOULDBLOCK) return LockResult::kHeldByAnother;
  // What Lustre mounted without flock says, NFS without its lock service, and others.
  if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP) return LockResult::kUnsupported;
  return ErrnoStatus(errno, "lock", path);
}

}  // namespace official::files
