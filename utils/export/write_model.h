// The files of an exported model, in every format that is asked for.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/answers.h"
#include "utils/export/destination.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/signature.h"

namespace official::exporting {

// Writes `<export_dir>/<seconds since 1970>/`, a SavedModel (saved_model.h), model.onnx (onnx_model.h) or both, and
// returns its path. The directory appears complete or not at all (version_directory.h). `extra_files`, contents by
// name, go to assets.extra/. A model for ONNX has one signature. If there are `answers`, those to the first signature,
// the graph must give the same (CheckAnswers). Errors: those of this check, of the formats and of the file system.
absl::StatusOr<std::string> WriteModel(const Destination& to, const GraphDefBuilder& graph,
                                       const std::map<std::string, compute::Tensor>& variables,
                                       absl::Span<const Signature> signatures,
                                       const std::map<std::string, std::string>& extra_files = {},
                                       const std::optional<Answers>& answers = std::nullopt);

}  // namespace official::exporting
