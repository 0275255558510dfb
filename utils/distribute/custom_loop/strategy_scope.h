// StrategyScope: what a program makes under strategy.scope() to train with a loop of its own: variables with a copy on
// each replica, and functions that every replica runs. As in "Custom training loops" of TensorFlow's guide "Distributed
// training":
//
//   ASSIGN_OR_RETURN(const auto scope, StrategyScope::Create(*strategy, /*seed=*/1));
//   ReplicaFunction train_step([](ReplicaContext& context, absl::Span<const Value> inputs) {
//     compute::Layers layers(context.graph(), DType::kFloat32);
//     const Value errors = compute::Square(compute::Sub(layers.Dense(inputs[0], 1), inputs[1]));
//     const Value loss = ComputeAverageLoss(errors, {.global_batch_size = 20});
//     ... Gradients, context.ApplyGradients ...
//     return std::vector<Value>{loss};
//   });
//   while (...) {
//     ASSIGN_OR_RETURN(const std::vector<PerReplica> losses, scope->Run(train_step, {x, y}));
//     ASSIGN_OR_RETURN(const Tensor loss, scope->Reduce(ReduceOp::kSum, losses[0]));
//   }
//
// With several workers all of them make the same calls in the same order.
//
// With the strategy central_storage, tf.distribute.experimental.CentralStorageStrategy, the replicas share one copy of
// the variables. It does not change while they run a function: what they sum is handed over, and one device makes the
// updates when all have computed. So what a replica reads after ApplyGradients are the values of before.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/program/program.h"
#include "utils/distribute/custom_loop/distributed_variable.h"
#include "utils/distribute/custom_loop/per_replica.h"
#include "utils/distribute/custom_loop/replica_context.h"
#include "utils/distribute/custom_loop/split_step.h"
#include "utils/distribute/custom_loop/trackable.h"
#include "utils/distribute/strategy.h"

namespace official::distribute {

// A function that replicas run, as tf.function: it is called once for each replica and each set of input types, with
// central_storage once more for the updates, and the graphs that it has built are kept. It must not outlive the scope
// that runs it.
class ReplicaFunction {
 public:
  explicit ReplicaFunction(ReplicaFn fn) : fn_(std::move(fn)) {}

 private:
  friend class StrategyScope;
  struct Built {
    ReplicaStep step;
    std::unique_ptr<compute::Program> program;
  };
  // The updates of one copy of the variables, from what the first replica hands over.
  struct Update {
    UpdateStep step;
    std::unique_ptr<compute::Program> program;  // null: there are none
  };

  ReplicaFn fn_;
  const void* scope_ = nullptr;                      // that has run it
  std::map<std::string, Update> updates_;            // by the types of the first replica's inputs
  std::vector<std::map<std::string, Built>> built_;  // by local replica; by the types of the inputs
};

// The replica for which experimental_distribute_values_from_function asks for a value.
struct ValueContext {
  int replica_id_in_sync_group;
  int num_replicas_in_sync;
};

class StrategyScope : public Trackable {
 public:
  // `strategy` must outlive the scope. Variables that functions make get their initial values under the chief's `seed`.
  // InvalidArgument for central_storage on several devices that do not compute in the host's memory; else errors of
  // asking the chief.
  static absl::StatusOr<std::unique_ptr<StrategyScope>> Create(Strategy& strategy, uint64_t seed);

  StrategyScope(const StrategyScope&) = delete;
  StrategyScope& operator=(const StrategyScope&) = delete;

  Strategy& strategy() { return replicas_.strategy; }
  int num_replicas_in_sync() const { return replicas_.strategy.num_replicas_in_sync(); }

  // Makes a variable, which the scope owns. AlreadyExists if there is one of this name, InvalidArgument if the chief's
  // initial value has another type; else errors of DistributedVariable::Create.
  absl::StatusOr<DistributedVariable*> CreateVariable(const VariableOptions& options);
  // Returns a variable, also one that a function has made, such as "dense/kernel": that is on-write and without
  // aggregation. NotFound if no function has run that makes it.
  absl::StatusOr<DistributedVariable*> Variable(absl::string_view name);
  // Returns the names of all variables, sorted.
  std::vector<std::string> VariableNames() const;

  // The variables as a checkpoint sees them: a mirrored one by its first copy, an on-read one by its aggregated copies.
  // All workers make the same calls.
  absl::StatusOr<std::vector<std::string>> TrackedNames() override { return VariableNames(); }
  absl::StatusOr<compute::Tensor> ReadTracked(const std::string& name) override;
  absl::Status RestoreVariables(ReadVariableFn read) override;
  bool is_chief() const override { return replicas_.strategy.is_chief(); }
  absl::StatusOr<std::string> FromChief(const absl::StatusOr<std::string>& own) override {
    return replicas_.strategy.FromChief(own);
  }

  // Runs the function on every replica at the same time: it gets of a PerReplica argument its own component, of others
  // the tensor. Returns its results, [result]. InvalidArgument if the replicas of this worker have results of different
  // number or dtype, or do not make the same merge calls and sums: those of other workers are not compared, and workers
  // wait for each other in every sum. FailedPrecondition within a function; else errors of the function and of the
  // devices, after which some replicas may have updated their variables.
  absl::StatusOr<std::vector<PerReplica>> Run(ReplicaFunction& function, absl::Span<const DistributedValue> arguments);

  // Returns ReduceTensors of the values of all replicas, or what the strategy's cross_device_ops make of them. A tensor
  // that is the same for all is, without an axis, its own mean, and has no sum unless it is 0: InvalidArgument.
  absl::StatusOr<compute::Tensor> Reduce(ReduceOp op, const DistributedValue& value, std::optional<int> axis = {});
  // Returns ConcatTensors of the values of all replicas, which may differ in the size of `axis`.
  absl::StatusOr<compute::Tensor> Gather(const PerReplica& value, int axis);
  // Returns the components on this worker; those of a plain tensor are itself.
  static std::vector<compute::Tensor> LocalResults(const DistributedValue& value);
  // Returns the values that `fn` gives for the replicas of this worker.
  absl::StatusOr<PerReplica> DistributeValuesFromFunction(
      absl::FunctionRef<absl::StatusOr<compute::Tensor>(const ValueContext& context)> fn);

 private:
  StrategyScope(Strategy& strategy, uint64_t seed);
  // Builds the function for a local replica.
  absl::StatusOr<ReplicaStep> Build(const ReplicaFunction& function, int replica,
                                    absl::Span<const compute::TensorType> inputs);
  // Builds, if it is not there yet, and runs what updates the variables from what the first replica has handed over.
  absl::Status RunUpdate(ReplicaFunction& function, const std::string& types, absl::Span<const compute::Tensor> inputs,
                         const ReplicaFunction::Built& first);
  absl::StatusOr<ReplicaFunction::Update> BuildUpdate(const ReplicaFunction& function,
                                                      absl::Span<const compute::Tensor> inputs);
  // Returns the variables that a local replica reads.
  compute::VariableStore& StoreOf(int replica) { return *replicas_.stores[replicas_.one_copy ? 0 : replica]; }

  // Makes the variables of a graph that are new.
  absl::Status CreateVariables(const compute::Graph& graph);
  // Gives a variable, just made, the value that read_ has of it.
  absl::Status Restore(const std::string& name);

  const uint64_t seed_;
  ReplicaStores replicas_;
  ReadVariableFn read_;                                  // null: variables begin with their initial values
  std::vector<std::unique_ptr<compute::Arena>> arenas_;  // by local replica, and where there is one copy its updates'
  std::map<std::string, std::unique_ptr<DistributedVariable>> variables_;
};

}  // namespace official::distribute
