// What a file really is, for errors about files that are not what a reader expects: a page that a server sent in place
// of the data, an archive that was not unpacked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace official::data {

// As many bytes tell all kinds that are known here: the signature of tar archives lies at 257.
inline constexpr int64_t kFileKindBytes = 512;

// What the file that begins with `head` is, to follow "the file is": "an HTML page", "gzip-compressed", ...; empty if
// the bytes tell nothing.
absl::string_view FileKind(absl::string_view head);

// The same of a file by its path; empty too if it cannot be read.
absl::string_view KindOfFile(const std::string& path);

// " (the file is an HTML page)", to end an error with; empty if the kind is not known.
std::string FileKindNote(absl::string_view head);
std::string KindNoteOfFile(const std::string& path);

}  // namespace official::data
