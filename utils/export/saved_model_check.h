// What is checked of a SavedModel before an export is said to be done.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/protos/saved_model.pb.h"

namespace official::exporting {

// Checks a graph with its signatures and its saver, without running it: every input of a node is a node that is there,
// names are unique, the graph has no cycle, every tensor of a signature and of the saver is of a node that is there,
// inputs of signatures are placeholders of the same type and shape, and the saver restores all variables. Internal,
// naming the node, if one of this is not so.
absl::Status CheckMetaGraph(const tensorflow::MetaGraphDef& meta_graph);

// Reads back what was written to `directory`: saved_model.pb has the bytes of `model`, which is a model of one graph
// that passes CheckMetaGraph; the variables are those that the graph has, with their types and shapes; their checksums
// are right, and their bytes those of `variables`. Aborted, naming the file or the variable, if it is not so.
absl::Status CheckSavedModel(const std::string& directory, absl::string_view model,
                             const std::map<std::string, compute::Tensor>& variables);

}  // namespace official::exporting
