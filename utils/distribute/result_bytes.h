// Results as bytes: what a task gives another one, or the error that it has instead (exchange.h).
#pragma once

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::distribute {

// Returns the parts of a frame: the value or the message of the error, of which it is a view, then the code of the
// status, one byte.
std::array<absl::string_view, 2> PackResult(const absl::StatusOr<std::string>& result);

// Returns the result that such a frame has. DataLoss if it ends with no code of a status.
absl::StatusOr<std::string> UnpackResult(std::string frame);

}  // namespace official::distribute
