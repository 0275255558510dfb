// The weights of a network in files: checkpoints of TensorFlow's format.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/train/keras/callbacks.h"

namespace official::keras {

// Returns NotFound if one of the weights has none of the names that the model has.
absl::Status CheckWeights(const std::string& model, const std::vector<std::string>& names, const Weights& weights);

// Writes a checkpoint with the prefix `path`, whose directory is made. Errors: those of the file system.
absl::Status WriteWeights(const std::string& path, const Weights& weights);
// Returns what is in such a checkpoint. Errors: those of train::BundleReader.
absl::StatusOr<Weights> ReadWeights(const std::string& path);

}  // namespace official::keras
