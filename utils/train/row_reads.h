// RowReads: the tables, such as embeddings, of which a training step reads only the rows that its batch names, and
// which have no gradient in all others. A worker of a job with parameter servers then reads and sends only those rows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::train {

// Tables that are read at the same rows.
struct RowReads {
  compute::Value ids;                     // int32 [n]: the rows, in any order and perhaps several times
  std::vector<compute::Value> tables;     // variables [V, ...]
  std::vector<compute::Value> gradients;  // for each table IndexedSlices of `ids`
};

// Returns those of the float32 variables that all nodes of the graph read by rows (OpDef::row_ids), and whose gradient,
// at the same place in `gradients`, is an IndexedSlices of these rows. Their ids depend on `examples` alone, which are
// inputs of the graph. A table that is also used as a whole, for example in a regularization term, is not among them.
std::vector<RowReads> FindRowReads(const compute::Graph& graph, absl::Span<const compute::Value> variables,
                                   absl::Span<const compute::Value> gradients,
                                   absl::Span<const compute::Value> examples);

}  // namespace official::train
