// A trained model for programs that serve it.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "utils/export/destination.h"
#include "utils/export/serving_graph.h"
#include "utils/train/estimator.h"

namespace official::exporting {

// Writes <export_dir>/<seconds since 1970>/ (write_model.h), the graph with the values that its variables have in the
// estimator, and returns its path. `extra_files`, contents by name, go to assets.extra/. NotFound if nothing was
// trained; otherwise errors of Estimator::LoadVariables and WriteModel.
absl::StatusOr<std::string> ExportModel(train::Estimator& estimator, const ServingGraph& serving, const Destination& to,
                                        const std::map<std::string, std::string>& extra_files = {});

}  // namespace official::exporting
