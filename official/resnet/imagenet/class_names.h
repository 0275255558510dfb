// The names of the classes of an image data set: the file labels.txt, beside the records and in a model_dir.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace official::resnet {

// By class, from 0 on. Empty if they are not known.
using ClassNames = std::vector<std::string>;

inline constexpr char kClassNamesFile[] = "labels.txt";

// Of a file with a name on each line. DataLoss if it has none.
absl::StatusOr<ClassNames> ReadClassNames(const std::string& path);

// Those of labels.txt in `directory`; empty if there is no such file.
absl::StatusOr<ClassNames> FindClassNames(const std::string& directory);

// Contents of a file that ReadClassNames reads.
std::string ClassNamesText(const ClassNames& names);

// Writes labels.txt into `directory`.
absl::Status WriteClassNames(const std::string& directory, const ClassNames& names);

// InvalidArgument, with the first class that differs, unless both are the same. `a_file` and `b_file` say where they
// are from.
absl::Status CheckSameClasses(const ClassNames& a, const std::string& a_file, const ClassNames& b,
                              const std::string& b_file);

}  // namespace official::resnet
