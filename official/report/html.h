// Text in HTML and SVG.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace official::report {

// Returns `text` for use in an element or a quoted attribute: & < > " ' are replaced by entities, and what XML does not
// allow - control characters, and bytes that are not UTF-8 - by U+FFFD.
std::string Escape(absl::string_view text);

}  // namespace official::report
