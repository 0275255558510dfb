// ShareResults as bytes, for other workers of the same program.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/train/model.h"

namespace official::train {

// Returns, for each tensor, its type, shape and elements.
std::string BytesOf(const std::vector<ShareResults>& results);
// Returns what BytesOf was given. DataLoss if `bytes` are none of its.
absl::StatusOr<std::vector<ShareResults>> ShareResultsFrom(absl::string_view bytes);

}  // namespace official::train
