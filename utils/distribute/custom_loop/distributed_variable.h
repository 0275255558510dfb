// DistributedVariable: a variable of which every replica has a copy, as tf.Variable made in the scope of a
// MirroredStrategy, or of which all have one (AggregatingVariable), as with CentralStorageStrategy. What is here
// happens in cross-replica context, outside of replicas; what a replica does to its copy while it runs is in
// replica_context.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/program/variable_store.h"
#include "utils/distribute/custom_loop/per_replica.h"
#include "utils/distribute/strategy.h"

namespace official::distribute {

// tf.VariableSynchronization.
enum class VariableSynchronization {
  kAuto,     // kOnWrite
  kNone,     // not for a strategy: an error
  kOnWrite,  // a write goes to all copies
  kOnRead,   // each replica writes its own copy; they are combined when they are read in cross-replica context
};

// tf.VariableAggregation: how the values of the replicas become one.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

struct VariableOptions {
  std::string name;
  compute::Tensor initial_value;  // of every copy, also on the other workers: that of the chief counts
  // Unset: floating variables that are not kOnRead are trainable.
  std::optional<bool> trainable = {};
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
};

// The strategy and, for each of its local replicas or for all of them, the variables.
struct ReplicaStores {
  Strategy& strategy;
  std::vector<std::unique_ptr<compute::VariableStore>> stores;  // one, if the replicas share it
  bool one_copy = false;                                        // they do: central_storage
  bool in_replica_context = false;                              // the function of a replica is being built

  // Returns FailedPrecondition in replica context.
  absl::Status CheckCrossReplicaContext() const;
  // Returns the tensors of all replicas, in their order. All workers call it at the same point. DataLoss if another
  // worker sends a different number of tensors than it has replicas.
  absl::StatusOr<std::vector<compute::Tensor>> OfAllReplicas(const PerReplica& value) const;
};

// Source of all rules: TensorFlow 2.21, MirroredVariable and SyncOnReadVariable.
class DistributedVariable {
 public:
  // `replicas`, which has the variable in its stores, must outlive it. Where there is one copy it is on-write.
  // InvalidArgument for kNone as synchronization, and for the mean of integers.
  static absl::StatusOr<std::unique_ptr<DistributedVariable>> Create(ReplicaStores& replicas,
                                                                     const VariableOptions& options);

  // Returns a variable that a function has made, and the stores have: on-write and without aggregation.
  static std::unique_ptr<DistributedVariable> OfFunction(ReplicaStores& replicas, compute::VariableSpec spec);

  const compute::VariableSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name; }
  bool is_on_read() const { return on_read_; }
  VariableAggregation aggregation() const { return aggregation_; }

  // Returns the first local copy; of an on-read variable the copies of all replicas, aggregated. That asks the other
  // workers, for kOnlyFirstReplica the chief, too: all of them read an on-read variable at the same point.
  // InvalidArgument for an on-read variable without aggregation.
  absl::StatusOr<compute::Tensor> Read() const;
  // Writes to every copy. An on-read variable that sums takes value / replicas in each copy, for integers without the
  // remainder. InvalidArgument for another type.
  absl::Status Assign(const compute::Tensor& value);
  // Adds to, or subtracts from, every copy. InvalidArgument for a variable with several copies that sums over replicas,
  // unless it is on-write and the value is 0.
  absl::Status AssignAdd(const compute::Tensor& value);
  absl::Status AssignSub(const compute::Tensor& value);
  // Returns the local copies, as strategy.experimental_local_results(variable) does.
  absl::StatusOr<PerReplica> LocalCopies() const;

 private:
  DistributedVariable(ReplicaStores& replicas, compute::VariableSpec spec, bool on_read,
                      VariableAggregation aggregation)
      : replicas_(replicas), spec_(std::move(spec)), on_read_(on_read), aggregation_(aggregation) {}
  absl::Status AddToCopies(const compute::Tensor& value, int sign, absl::string_view method);

  ReplicaStores& replicas_;
  const compute::VariableSpec spec_;
  const bool on_read_;
  const VariableAggregation aggregation_;
};

}  // namespace official::distribute
