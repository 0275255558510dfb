// MetaGraphDef: a TensorFlow graph with its signatures and the nodes that restore its variables, as SavedModels have it
// and TensorFlow's Saver leaves it beside a checkpoint.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message_lite.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/serving_graph.h"
#include "utils/export/signature.h"
#include "utils/protos/saved_model.pb.h"

namespace official::exporting {

// Adds a saver to the graph, if it has variables, and returns it with its signatures, a single one also as
// `serving_default`. `stored_name` returns the name that a variable has in the checkpoints.
tensorflow::MetaGraphDef BuildMetaGraph(GraphDefBuilder graph, absl::Span<const Signature> signatures,
                                        absl::FunctionRef<std::string(const std::string&)> stored_name);

// Returns the message's bytes with maps in the order of their keys, so that equal messages are equal files.
std::string SerializeDeterministically(const google::protobuf::MessageLite& message);

// CheckpointGraph: what tf.compat.v1.train.import_meta_graph and text readers of a GraphDef need beside the checkpoints
// of a training.
struct CheckpointGraph {
  std::string meta_graph;  // MetaGraphDef: the contents of model.ckpt-<step>.meta, the same for all steps
  std::string graph_text;  // GraphDef in text format: the contents of graph.pbtxt
};

// Returns the files for a model's predictions. With `averages` the graph's trainable variables are restored from their
// moving averages (train::kAverageSuffix). Internal if the graph is not consistent (saved_model_check.h).
absl::StatusOr<CheckpointGraph> CheckpointGraphOf(const ServingGraph& serving, bool averages);

}  // namespace official::exporting
