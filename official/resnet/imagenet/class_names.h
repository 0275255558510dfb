// The names of the classes of an image data set: the file labels.txt, next to the records and in a model_dir.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace official::resnet {

// The names by class, from 0 on; empty if they are not known.
using ClassNames = std::vector<std::string>;

// Returns the names in a file with one name a line, without blank lines at its end, of which the log warns; DataLoss if
// there are none.
absl::StatusOr<ClassNames> ReadClassNames(const std::string& path);

// Returns the names in labels.txt in `directory`; empty if there is no such file.
absl::StatusOr<ClassNames> FindClassNames(const std::string& directory);

// Returns the contents of a file that ReadClassNames reads.
std::string ClassNamesText(const ClassNames& names);

// Writes labels.txt into `directory`.
absl::Status WriteClassNames(const std::string& directory, const ClassNames& names);

// Returns InvalidArgument, with the first class that differs, unless both are the same. `a_file` and `b_file` are the
// files that the names are from.
absl::Status CheckSameClasses(const ClassNames& a, const std::string& a_file, const ClassNames& b,
                              const std::string& b_file);

}  // namespace official::resnet
