// Adam for tables of which a step reads a few rows. Dense Adam moves every row in every step, also those that have no
// gradient: their moments decay and still push them. Here a row makes the steps that it has missed when it is next
// read, one by one and in the same arithmetic, so that whoever reads it sees the bits that dense Adam gives.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "utils/compute/ops/optimizer/optimizer.h"

namespace official::compute::op {

inline constexpr OpName CatchUpRows("CatchUpRows");
inline constexpr OpName ApplyDeferredAdam("ApplyDeferredAdam");
inline constexpr OpName SettleRows("SettleRows");

}  // namespace official::compute::op

// The inputs of these ops. CatchUpRows and SettleRows begin with the deferred steps; in ApplyDeferredAdam the scalars
// of apply_adam and, if the attribute "guarded" is true, those of update_guard are before them. Groups follow, one for
// each table: SettleRows has of each the first kSettleGroupSize tensors, CatchUpRows kCatchUpGroupSize and
// ApplyDeferredAdam all. CatchUpRows gives back the ids of each group.
namespace official::compute::deferred_adam {
enum Steps : int { kAlphas, kNumber };
inline constexpr int kNumSteps = 2;
enum Group : int { kTable, kM, kV, kMade, kIds, kRows };
inline constexpr int kSettleGroupSize = 4, kCatchUpGroupSize = 5, kApplyGroupSize = 6;
}  // namespace official::compute::deferred_adam

namespace official::compute {

// The prefix of the variables that hold the state of deferred steps. They are not part of a checkpoint: they are zero
// once SettleRows has run.
inline constexpr char kDeferredPrefix[] = "_local/adam/";

struct TableRows {
  Value table;  // a float32 variable [V, ...]
  Value ids;    // int32 [n] in [0, V): the rows that the step reads
};

// Brings these rows up to date and returns the ids, by which the tables are then to be read: one Value for each entry
// of `tables`. Adam (optimizer.h) defers the steps of tables whose gradient is an IndexedSlices with such ids. `params`
// must be those of Adam, which must occur once in a graph. It has no gradient. Running fails with InvalidArgument if an
// id is outside its table. GPUs take up to 16 tables.
//
// The gradient of each table must be an IndexedSlices with one of the results as its ids: Gather reads the table once,
// by these ids, and nothing else that has a gradient reads it (a second Gather, an L2Loss). Otherwise Adam fails the
// graph with InvalidArgument.
//
// With several replicas, or several micro-batches in a step (Graph::step_context), gradients are dense sums and no
// step can be deferred: the ids are then returned as they are. Otherwise steps are deferred on every device and for any
// number of ids, also where a batch reads so many of the rows that dense Adam would take less time. PJRT devices alone
// move all rows in every step, with the same effect.
std::vector<Value> CatchUpRows(absl::Span<const TableRows> tables, const AdamParams& params);

// True for ids that CatchUpRows returned.
bool AreCaughtUp(Value ids);

// The tables whose rows the graph's CatchUpRows bring up to date.
absl::flat_hash_set<Value> CaughtUpTables(const Graph& graph);

// Returns the variables with gradients, IndexedSlices of any ids, whose rows a CatchUpRows brings up to date, for
// graphs with any StepContext.
std::vector<VariableGradient> CaughtUp(absl::Span<const VariableGradient> variables, const AdamParams& params);

// Makes deferred steps of variables with gradients of caught-up rows; `powers` are beta1^t and beta2^t.
Node* DeferredAdam(const UpdateInputs& inputs, absl::Span<const Value> powers,
                   absl::Span<const VariableGradient> variables, const AdamParams& params);

// The node that brings up to date all rows of the tables that the graph's DeferredAdam updates; nullptr if the graph
// has none. It must run before anything but such a graph reads them.
Node* SettleRows(Graph& graph);

}  // namespace official::compute
