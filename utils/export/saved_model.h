// SavedModel: a TensorFlow graph with its variables and signatures, as TensorFlow, TensorFlow Serving and
// saved_model_cli load it.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/signature.h"

namespace official::exporting {

// Writes saved_model.pb into a directory and, if the graph has variables, variables/. The tag is `serve`; a single
// signature is also the default one (`serving_default`). `variables` holds the values of the graph's variables, each of
// the variable's type; others are not written. What was written is read back and checked (saved_model_check.h). Errors
// are those of the file system (utils/files) and of that check.
absl::Status WriteSavedModel(const std::string& directory, GraphDefBuilder graph,
                             const std::map<std::string, compute::Tensor>& variables,
                             absl::Span<const Signature> signatures);

}  // namespace official::exporting
