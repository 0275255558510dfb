// ReplicaContext: what the function of a replica sees of its strategy, as tf.distribute.ReplicaContext, while the graph
// of the replica is built.
//
// All replicas must make the same sums in the same order: the function may depend on the replica only in what it
// computes between them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/distribute/custom_loop/cross_replica_context.h"
#include "utils/distribute/custom_loop/distributed_variable.h"
#include "utils/distribute/custom_loop/per_replica.h"

namespace official::distribute {

class ReplicaContext;

// Builds what one replica computes from its inputs, and returns the results.
using ReplicaFn = std::function<absl::StatusOr<std::vector<compute::Value>>(ReplicaContext& context,
                                                                            absl::Span<const compute::Value> inputs)>;

// Adds the nodes of one update of variables, for example compute::GradientDescent.
using OptimizerFn = std::function<std::vector<compute::Node*>(const compute::UpdateInputs& inputs,
                                                              absl::Span<const compute::VariableGradient> variables)>;

// What a merge_call computes from the values of all replicas; what it returns is what each replica gets.
using MergeFn =
    std::function<std::vector<compute::Value>(CrossReplicaContext& context, absl::Span<const PerReplicaValue> values)>;

// UpdateSplit: where a step is divided into the graph of a replica, which computes what updates take, and one that
// makes them: see split_step.h.
class UpdateSplit {
 public:
  virtual ~UpdateSplit() = default;
  // True if this graph sums the values of the replicas; false: it takes what they have summed.
  virtual bool sums() const = 0;
  // Takes a number that updates need, such as the learning rate, and returns the value to use in this graph.
  virtual compute::Value Number(compute::Value value) = 0;
  // Takes a variable, and its gradient or what it is assigned or added. Returns the updates of this graph instead:
  // none, or those of the variable or of parts of it.
  virtual std::vector<compute::VariableGradient> Update(const compute::VariableGradient& update) = 0;
};

class ReplicaContext {
 public:
  // `pack_sizes`: see Strategy::pack_sizes().
  ReplicaContext(compute::Graph& graph, int replica_id, int num_replicas,
                 const std::optional<compute::PackSizes>& pack_sizes)
      : graph_(graph), replica_id_(replica_id), num_replicas_(num_replicas), pack_sizes_(pack_sizes) {}

  compute::Graph& graph() { return graph_; }
  // Makes updates as `split` says, which must outlive this.
  void SplitUpdates(UpdateSplit& split) { split_ = &split; }
  // A number from 0 among the replicas of all workers.
  int replica_id_in_sync_group() const { return replica_id_; }
  int num_replicas_in_sync() const { return num_replicas_; }

  // Returns the sum or mean over all replicas of a float32 value of the same shape on each, or the sum of int64 scalars
  // in (-2^62, 2^62); a value without elements is its own. The gradient of a sum is the sum of the gradients.
  compute::Value AllReduce(ReduceOp op, compute::Value value);
  // Returns float32 values of the same shape on all replicas, joined along `axis` in the order of the replicas.
  compute::Value AllGather(compute::Value value, int axis);

  // Returns what `fn` returns for the values, which are those of all replicas to it: merge_call. A result that is
  // computed from CrossReplicaContext's values is the same on all replicas, PerReplicaValue::own the replica's. Every
  // replica makes the same merge calls in the same order. Within `fn` no function of this class may be called, except
  // Read: the graph fails.
  std::vector<compute::Value> MergeCall(const MergeFn& fn, absl::Span<const compute::Value> values);

  // Lets layers that are made from here on, and are BatchNormLayer::synchronized, normalize with the statistics of all
  // replicas, of which this one has so many examples, perhaps 0. Source: tf.keras.layers.BatchNormalization with
  // synchronized=True.
  void SynchronizeBatchNormalization(int64_t num_examples);

  // Returns this replica's copy of a variable, as the function has assigned it so far.
  compute::Value Read(const DistributedVariable& variable);
  // Write this replica's copy: of an on-read variable, or one without aggregation, with the replica's own value; of
  // others with the aggregated values of all replicas. The variable is float32 or an int64 scalar, the value of the
  // same type. With central_storage, where there is one copy, the graph fails for a variable without aggregation.
  void Assign(const DistributedVariable& variable, compute::Value value);
  void AssignAdd(const DistributedVariable& variable, compute::Value value);
  void AssignSub(const DistributedVariable& variable, compute::Value value);
  // Adds a value of its type to the variable of this spec: to this replica's copy or, where updates are made elsewhere,
  // the sum of the values of all replicas.
  void AssignAdd(const compute::VariableSpec& variable, compute::Value value);

  // Returns the trainable variables that the function has made or read so far, in that order.
  std::vector<compute::Value> TrainableVariables() const;
  // Sums the gradients over all replicas, unless the caller has done so (not for central_storage), and updates the
  // variables. A variable without
  // a gradient (an invalid value) is left out, with a warning; the graph fails if none has one. What is read of the
  // variables before, and used after, has their new contents. Source: tf.keras.optimizers.Optimizer.apply_gradients.
  void ApplyGradients(const OptimizerFn& optimizer, const compute::UpdateInputs& inputs,
                      absl::Span<const compute::VariableGradient> variables,
                      bool experimental_aggregate_gradients = true);

  // Updates the moving averages of layers, such as compute::Layers::moving_averages(), with the means over the replicas
  // of the values of this step. A replica with an empty batch counts as one whose averages stay. That is the mean of
  // the copies that TensorFlow's replicas have, each of its own batch, unless a replica has had an empty batch: there
  // its own copy stays, here the mean of all copies, since they are one. Source: tf.keras.layers.BatchNormalization.
  void UpdateMovingAverages(absl::Span<const compute::MovingAverage> averages, double momentum = 0.99);

  // Adds what is left to do behind the function, whose results are `outputs`.
  void Finish(std::vector<compute::Value>& outputs);
  const std::vector<compute::Node*>& targets() const { return targets_; }
  int num_merge_calls() const { return num_merge_calls_; }

 private:
  friend class CrossReplicaContext;
  struct Assignment {
    compute::Value variable, value;
    compute::Value delta;  // what was added to the variable; invalid if `value` does not depend on it
  };

  compute::Value Scalar(float value);
  // False if there is nothing to sum, or what is read has been summed.
  bool sums() const { return num_replicas_ > 1 && (split_ == nullptr || split_->sums()); }
  // Fails the graph, and returns false, within a merge_call.
  bool IsInReplica();
  // AllReduce and AllGather, also within a merge_call.
  compute::Value Sum(ReduceOp op, compute::Value value);
  compute::Value Joined(compute::Value value, int axis);
  // Returns the value of each replica, float32 of the same shape or an int64 scalar.
  std::vector<compute::Value> OfEach(compute::Value value);
  std::vector<compute::Value> ScalarOfEach(compute::Value value);
  compute::Value Aggregate(const DistributedVariable& variable, compute::Value value);
  compute::Value Read(const compute::VariableSpec& variable);
  void Store(const compute::VariableSpec& variable, compute::Value value, compute::Value delta);
  // Stores the variable's value and this one, added.
  void Add(const compute::VariableSpec& variable, compute::Value value);
  // Returns what split_ makes of an update.
  std::vector<compute::VariableGradient> Split(const compute::VariableGradient& update);
  // Returns `value`, in memory of its own if it is that of a variable.
  compute::Value Copied(compute::Value value);
  void WriteAssigned();

  compute::Graph& graph_;
  const int replica_id_, num_replicas_;
  const std::optional<compute::PackSizes> pack_sizes_;
  UpdateSplit* split_ = nullptr;                // null: updates are of this graph
  std::map<std::string, Assignment> assigned_;  // by the variable's name; not written yet
  std::vector<compute::Node*> targets_;
  int num_merge_calls_ = 0;
  bool in_merge_call_ = false;
};

// Builds, in the graph of `context`, what `fn` computes from inputs of these types, and returns the roots. Errors:
// those of the function, and InvalidArgument for a result that is no value.
absl::StatusOr<compute::GraphRoots> BuildReplica(const ReplicaFn& fn, absl::Span<const compute::TensorType> inputs,
                                                 ReplicaContext& context);

}  // namespace official::distribute
