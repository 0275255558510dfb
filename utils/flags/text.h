// Text for messages and help.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace official::flags {

// A user's value as one short line: control characters escaped, the middle of a very long one left out.
std::string Printable(absl::string_view value);

// Up to three of `known` that someone who wrote `name` may have meant: the ones at the smallest edit distance (a swap
// of neighbours counts one; at most a third of the letters may differ), else those that begin with or contain `name`.
std::vector<std::string> NearestNames(absl::string_view name, const std::vector<std::string>& known);

// Words of `text` in lines of at most `width` columns, each indented by `indent` blanks and ended by a newline. A
// longer word gets a line of its own.
std::string Wrap(absl::string_view text, int indent, int width);

}  // namespace official::flags
