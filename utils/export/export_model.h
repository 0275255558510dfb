// A trained model for programs that serve it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/data/dataset.h"
#include "utils/export/destination.h"
#include "utils/train/estimator.h"

namespace official::exporting {

struct ServingInput {
  std::string name;           // the name that clients use
  std::string placeholder;    // the name of its node
  std::vector<int64_t> dims;  // dimensions of one example; the values are the feature's, in the same order
};

struct ServingSignature {
  std::string key;                   // "classify", "predict", ...
  std::vector<ServingInput> inputs;  // one for each feature of the model, in their order
};

// Writes <export_dir>/<seconds since 1970>/ (write_model.h) and returns its path. The signature takes [-1, dims...] of
// each feature's type and gives the model's predictions by their names, computed in float32, whatever type the model
// was trained in. `extra_files`, contents by name, go to assets.extra/. NotFound if nothing was trained; Unimplemented
// if the model has an op that AddGraph does not know; otherwise those of WriteModel.
absl::StatusOr<std::string> ExportModel(train::Estimator& estimator, const data::ElementSpec& spec,
                                        const ServingSignature& signature, const Destination& to,
                                        const std::map<std::string, std::string>& extra_files = {});

}  // namespace official::exporting
