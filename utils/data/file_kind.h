// Recognizes the kind of a file by its first bytes, for errors about files that are not what a reader expects: a page
// that a server sent instead of the data, an archive that was not unpacked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace official::data {

// The number of first bytes that suffice for all known kinds: the signature of tar archives is at offset 257.
inline constexpr int64_t kFileKindBytes = 512;

// Returns the kind of a file that begins with `head`, to follow "the file is": "an HTML page", "gzip-compressed", ...;
// empty if it is not known.
absl::string_view FileKind(absl::string_view head);

// Returns the same for a file by its path; also empty if it cannot be read.
absl::string_view KindOfFile(const std::string& path);

// Return an end for an error, such as " (the file is an HTML page)"; empty if the kind is not known.
std::string FileKindNote(absl::string_view head);
std::string KindNoteOfFile(const std::string& path);

}  // namespace official::data
