// The models that serve_main knows.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "official/serve/servable/served_run.h"

namespace official::serve {

// Returns the name of the model that was trained in model_dir, as its flags.txt tells it: "mnist", ... NotFound if
// there is no checkpoint, or no flags.txt of one of the training programs; another error if they are there and cannot
// be read.
absl::StatusOr<std::string> ModelOfRun(const ServedRun& run);

// Opens its latest checkpoint. Errors: those of the model's OpenServable.
absl::StatusOr<std::unique_ptr<Servable>> OpenRun(const std::string& model, const ServedRun& run);

}  // namespace official::serve
