// The width of text on a terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace official::logs {

// Columns that UTF-8 text fills. Characters from U+1100 on count two, which most of them (Chinese, Japanese, Korean,
// emoji) fill; one that fills fewer only leaves a column free. A byte that is not UTF-8 counts one.
int DisplayColumns(absl::string_view text);

// As many whole characters of `text`, from its beginning, as fit into so many columns.
absl::string_view CutToColumns(absl::string_view text, int columns);

// `text` with a question mark for each control character, so that none moves the cursor.
std::string WithoutControls(absl::string_view text);

}  // namespace official::logs
