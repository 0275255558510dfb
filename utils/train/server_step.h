// The parts of a training step that a job with parameter servers has: which variables a server updates, and the tables
// of which workers read and send rows.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/train/training_step.h"

namespace official::train {

// Takes the tables that workers read by rows out of the variables with dense gradients. A norm of all gradients, if it
// is shown, is computed from dense ones.
void SeparateTables(TrainingStep& step);

// A micro-batch with examples leaves the gradients of tables as sums for each row.
void SumRows(TrainingStep& step);

// Keeps of a step's results only those for variables that are placed on the parameter server, or for their shards, and
// lists both. InvalidArgument if there are none, or if a partitioner makes no shards or more than there are rows.
absl::Status KeepPlaced(TrainingStep& step);

// Lists the variables of the graph from number `first` on, which the update has added. InvalidArgument if one that
// belongs to a shard has another shape.
absl::Status ListSlots(size_t first, TrainingStep& step);

// The update takes the gradients of tables that are placed here from its feeds.
void FeedRows(TrainingStep& step);

// Appends the tables that workers read by rows, with their dense gradients.
void AppendTables(const TrainingStep& step, std::vector<compute::VariableGradient>& gradients);

}  // namespace official::train
