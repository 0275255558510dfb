// Locks of whole files, which end with the process that holds them.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace official::files {

enum class LockResult {
  kLocked,
  kHeldByAnother,
  kUnsupported,  // by the file system: nothing keeps another process out
};

// Tries once to lock the open file `fd` against all others that ask for its lock; the lock ends when the file is
// closed. An error of the file system names `path`.
absl::StatusOr<LockResult> TryLock(int fd, const std::string& path);

}  // namespace official::files
