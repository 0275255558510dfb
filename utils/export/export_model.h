// A trained model as a SavedModel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/data/dataset.h"
#include "utils/train/estimator.h"

namespace official::exporting {

struct ServingSignature {
  std::string key;            // "classify", "predict", ...
  std::string input;          // the name by which clients give the input
  std::string placeholder;    // that of its node
  std::vector<int64_t> dims;  // of one example; its values are those of the model's feature in the same order
};

// Writes <export_dir>/<seconds since 1970>/ and returns its path. The signature takes float32 [-1, dims...] and gives
// the model's predictions by their names, computed in float32 whatever the model was trained in. `spec` has the model's
// one feature. NotFound if nothing was trained; Unimplemented if the model has an op that AddGraph does not know.
absl::StatusOr<std::string> ExportModel(train::Estimator& estimator, const data::ElementSpec& spec,
                                        const ServingSignature& signature, const std::string& export_dir);

}  // namespace official::exporting
