// The width of text on a terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace official::logs {

// Returns the number of columns that UTF-8 text fills. Characters from U+1100 on count as two, which most of them
// (Chinese, Japanese, Korean, emoji) fill; one that fills fewer only leaves a column free. A byte that is not UTF-8
// counts as one.
int DisplayColumns(absl::string_view text);

// Returns the longest beginning of `text` in whole characters that fits into `columns`.
absl::string_view CutToColumns(absl::string_view text, int columns);

// Returns `text` with a question mark for each control character, so that none moves the cursor.
std::string WithoutControls(absl::string_view text);

}  // namespace official::logs
