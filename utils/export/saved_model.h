// SavedModel: a TensorFlow graph with its variables and signatures, as TensorFlow, TensorFlow Serving and
// saved_model_cli load it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/graph_def_builder.h"

namespace official::exporting {

// A function of the graph that clients can call.
struct Signature {
  struct Tensor {
    std::string name;  // name of a node, or of one of its outputs ("node:1")
    compute::DType dtype;
    std::vector<int64_t> dims;  // -1: any size
  };
  std::string key;                        // "classify", "predict", ...
  std::map<std::string, Tensor> inputs;   // by the names that clients use
  std::map<std::string, Tensor> outputs;  // likewise
};

// Writes `<export_dir>/<seconds since 1970>/`, with saved_model.pb and, if the graph has variables, variables/, and
// returns its path. The tag is `serve`; a single signature is also the default one (`serving_default`). The directory
// appears complete or not at all; if the name is taken (two exports in one second), the next free number is used.
// `variables` holds the values of the graph's variables, each of the variable's type; others are not written.
// `extra_files`, contents by name, go to assets.extra/. What was written is read back and checked first
// (saved_model_check.h). Errors are those of the file system (utils/files) and of that check.
absl::StatusOr<std::string> WriteSavedModel(const std::string& export_dir, GraphDefBuilder graph,
                                            const std::map<std::string, compute::Tensor>& variables,
                                            absl::Span<const Signature> signatures,
                                            const std::map<std::string, std::string>& extra_files = {});

}  // namespace official::exporting
