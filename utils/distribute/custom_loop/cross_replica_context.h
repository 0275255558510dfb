// CrossReplicaContext: what the function of ReplicaContext::MergeCall sees, as the strategy in the merge_fn of
// tf.distribute.ReplicaContext.merge_call: the values of all replicas, which it sums, compares or writes to variables.
//
// The function adds nodes to the graph of each replica, and so it is called for each. What it computes from the values
// of all replicas has the same bits on every one.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/distribute/custom_loop/distributed_variable.h"
#include "utils/distribute/custom_loop/per_replica.h"

namespace official::distribute {

class ReplicaContext;

// A value that each replica has of its own, seen from outside of them.
struct PerReplicaValue {
  compute::Value own;  // of the replica whose graph is built
};

class CrossReplicaContext {
 public:
  explicit CrossReplicaContext(ReplicaContext& replica) : replica_(replica) {}

  compute::Graph& graph();
  int num_replicas_in_sync() const;

  // Returns the sum or mean over all replicas, of types as for ReplicaContext::AllReduce: strategy.reduce.
  compute::Value Reduce(ReduceOp op, const PerReplicaValue& value);
  // Returns the values of the replicas of all workers, in their order: float32 of the same shape on each, or int64
  // scalars. TensorFlow's strategy.experimental_local_results has those of this worker only.
  std::vector<compute::Value> ResultsOfReplicas(const PerReplicaValue& value);
  // Returns what is a value of its own on each replica, given one for each: InvalidArgument fails the graph for another
  // number.
  PerReplicaValue FromReplicas(absl::Span<const compute::Value> values);

  // Returns the copy of a variable on this replica, as the function of the replica has assigned it so far.
  compute::Value Read(const DistributedVariable& variable);
  // Replaces each copy by fn(copy), whatever the aggregation: strategy.extended.update. A function that uses
  // PerReplicaValue::own gives copies that differ. Types as for ReplicaContext::Assign.
  void Update(const DistributedVariable& variable, absl::FunctionRef<compute::Value(compute::Value copy)> fn);

 private:
  ReplicaContext& replica_;
};

}  // namespace official::distribute
