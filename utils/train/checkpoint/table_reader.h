// A reader of LevelDB's sorted table format, in which the index of a checkpoint is stored. It trusts nothing: LevelDB's
// own reader crashes on crafted sizes.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::train {

// Calls `visit` for each entry of the table in `bytes`, the contents of the file `path`, in ascending order of the
// keys. Stops with the first error of `visit`. DataLoss if the table is damaged. Needs time linear in the file's size,
// and memory for one key.
absl::Status ReadTable(absl::string_view path, absl::string_view bytes,
                       absl::FunctionRef<absl::Status(absl::string_view key, absl::string_view value)> visit);

}  // namespace official::train
