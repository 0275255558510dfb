// A second name for a file, or a copy of it.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace official::files {

// Gives a regular file a second name, which nothing has yet. Where the file system has no hard links, or the names are
// on two of them, the name gets a copy, complete from the start. Durable after SyncDirectory(). Errors: as those of
// AtomicFile.
absl::Status LinkOrCopy(const std::string& from, const std::string& to);

}  // namespace official::files
