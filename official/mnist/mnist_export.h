// The trained MNIST model for programs that serve it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "utils/export/destination.h"
#include "utils/train/estimator.h"

namespace official::mnist {

// Writes <export_dir>/<seconds since 1970>/ with the official signature `classify`: input image float32 [-1,28,28],
// outputs classes int64 [-1] and probabilities float32 [-1,10]. Returns its path. NotFound if nothing was trained.
absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, const exporting::Destination& to);

}  // namespace official::mnist
