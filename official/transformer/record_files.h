// The files of a data set that is spread over several: wmt32k-train-00001-of-00100 and so on.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::transformer {

// Returns the paths of all files <any>-NNNNN-of-MMMMM in `data_dir` with `tag` ("train", "dev") in <any>, in order.
// They are counted from 1, as upstream does, or from 0. NotFound, with what to do, if there are none; DataLoss as
// in utils/data/numbered_files.h.
absl::StatusOr<std::vector<std::string>> FindRecordFiles(const std::string& data_dir, absl::string_view tag);

}  // namespace official::transformer
