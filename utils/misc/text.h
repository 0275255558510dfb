// Text for messages and help.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace official::misc {

// Returns `text` without its middle if it is longer than 200 bytes.
std::string Shorten(absl::string_view text);

// Returns a user's value as one short line: control characters escaped, the middle of a very long one left out.
std::string Printable(absl::string_view value);

// Returns up to three of `known` that the writer of `name` may have meant: those at the smallest edit distance (a swap
// of neighbours counts one; at most a third of the letters may differ), else those that begin with or contain `name`.
std::vector<std::string> NearestNames(absl::string_view name, const std::vector<std::string>& known);

// Returns the number of bytes of the UTF-8 character at the beginning of `text`, from 1 to 4; 0 if there is none.
size_t Utf8CharacterLength(absl::string_view text);

bool IsUtf8(absl::string_view text);

// Returns `text` with each byte that is not part of a UTF-8 character replaced by U+FFFD.
std::string ReplaceInvalidUtf8(absl::string_view text);

// Returns the words of `text` in lines of at most `width` columns, each indented by `indent` blanks and ended by a
// newline. A longer word gets a line of its own.
std::string Wrap(absl::string_view text, int indent, int width);

}  // namespace official::misc
