// The files of a data set that is spread over several: train-00000-of-01024 and so on.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::data {

// Returns the name of a file, such as "train-00003-of-01024" for the set "train".
std::string NumberedName(absl::string_view set, int number, int of);

// Returns the paths of all files in `directory` that are of a wanted set, in order; none if the directory is missing,
// too. They are counted from 0 or from another number up to `max_begin`. DataLoss if some are missing, there are more
// than their names count, or they are of two sets.
absl::StatusOr<std::vector<std::string>> FindNumberedFiles(const std::string& directory, int max_begin,
                                                           absl::FunctionRef<bool(absl::string_view set)> is_wanted);

}  // namespace official::data
