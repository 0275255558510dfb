// The trained MNIST model as a SavedModel.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "utils/train/estimator.h"

namespace official::mnist {

// Writes <export_dir>/<seconds since 1970>/ with the official signature `classify`: input image float32 [-1,28,28],
// outputs classes int64 [-1] and probabilities float32 [-1,10]. Returns its path. NotFound if nothing was trained.
absl::StatusOr<std::string> ExportSavedModel(train::Estimator& estimator, const std::string& export_dir);

}  // namespace official::mnist
