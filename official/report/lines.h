// The lines of a file of any size.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::report {

// Lines longer than this reach the caller cut, so that a file without newlines does not fill the memory.
inline constexpr size_t kMaxLineBytes = 1 << 20;

// Calls `read` for each line, without its newline. `has_end` is false for a last line without one: it is still being
// written, or was cut off. Errors are those of files::RandomAccessFile.
absl::Status ForEachLine(const std::string& path, const std::function<void(absl::string_view, bool has_end)>& read);

}  // namespace official::report
