#include "utils/distribute/custom_loop/distributed_variable.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/tensor_bytes.h"

namespace official::distribute {

using compute::Tensor;

namespace {

// Returns f(a[i], b[i]), computed in float64 or int64, in the type of both.
template <typename F>
Tensor Elementwise(const Tensor& a, const Tensor& b, F f) {
  const auto compute_in = [&]<typename T>(T) {
    const Tensor result = a.CastTo(compute::DTypeOf<T>()), other = b.CastTo(compute::DTypeOf<T>());
    const absl::Span<T> x = result.flat<T>(), y = other.flat<T>();
    std::transform(x.begin(), x.end(), y.begin(), x.begin(), f);
    return result.CastTo(a.dtype());
  };
  return compute::IsFloating(a.dtype()) ? compute_in(double{}) : compute_in(int64_t{});
}

}  // namespace

absl::Status ReplicaStores::CheckCrossReplicaContext() const {
  if (!in_replica_context) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "Method requires being in cross-replica context: it is called while the function of a replica is built");
}

absl::StatusOr<std::vector<Tensor>> ReplicaStores::OfAllReplicas(const PerReplica& value) const {
  if (static_cast<int>(value.values.size()) != strategy.num_local_replicas()) {
    return absl::InvalidArgumentError(absl::StrCat("a per-replica value has ", value.values.size(),
                                                   " components, and this worker ", strategy.num_local_replicas(),
                                                   " replicas"));
  }
  if (!strategy.has_other_workers()) return value.values;
  std::string own;
  for (const Tensor& tensor : value.values) AppendTensor(tensor, own);
  ASSIGN_OR_RETURN(const std::vector<std::string> given, strategy.GatherBytes(own));
  std::vector<Tensor> all;
  const std::vector<compute::Share> shares = strategy.replicas_of_workers();
  for (size_t w = 0; w < given.size(); ++w) {
    absl::string_view bytes = given[w];
    while (!bytes.empty()) {
      ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(bytes));
      all.push_back(std::move(tensor));
    }
    if (static_cast<int64_t>(all.size()) == shares[w].end) continue;
    return absl::DataLossError(absl::StrCat(strategy.NameOfWorker(static_cast<int>(w)),
                                            " has sent another number of tensors than it has replicas, ",
                                            shares[w].end - shares[w].begin));
  }
  return all;
}

absl::StatusOr<std::unique_ptr<DistributedVariable>> DistributedVariable::Create(ReplicaStores& replicas,
                                                                                 const VariableOptions& options) {
  if (options.synchronization == VariableSynchronization::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("`NONE` variable synchronization mode is not supported with tf.distribute strategy. Please change "
                     "the `synchronization` for variable: ",
                     options.name));
  }
  const bool is_floating = compute::IsFloating(options.initial_value.dtype());
  if (options.aggregation == VariableAggregation::kMean && !is_floating) {
    return absl::InvalidArgumentError(
        "creating distributed tf.Variable with aggregation=MEAN and a non-floating dtype is not supported, please use "
        "a different aggregation or dtype");
  }
  const bool on_read = options.synchronization == VariableSynchronization::kOnRead;
  compute::VariableSpec spec = {options.name, options.initial_value.type(), compute::Initializer::Zeros(),
                                options.trainable.value_or(is_floating && !on_read)};
  return std::unique_ptr<DistributedVariable>(
      new DistributedVariable(replicas, std::move(spec), on_read && !replicas.one_copy, options.aggregation));
}

std::unique_ptr<DistributedVariable> DistributedVariable::OfFunction(ReplicaStores& replicas,
                                                                     compute::VariableSpec spec) {
  return std::unique_ptr<DistributedVariable>(
      new DistributedVariable(replicas, std::move(spec), /*on_read=*/false, VariableAggregation::kNone));
}

absl::StatusOr<PerReplica> DistributedVariable::LocalCopies() const {
  PerReplica copies;
  for (const auto& store : replicas_.stores) {
    ASSIGN_OR_RETURN(Tensor copy, store->Read(name()));
    copies.values.push_back(std::move(copy));
  }
  return copies;
}

absl::StatusOr<Tensor> DistributedVariable::Read() const {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  if (!on_read_) return replicas_.stores[0]->Read(name());
  if (aggregation_ == VariableAggregation::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("Could not convert from `tf.VariableAggregation` VariableAggregationV2.NONE "
                     "to`tf.distribute.ReduceOp` type: variable ",
                     name(), " is read in cross-replica context"));
  }
  ASSIGN_OR_RETURN(const PerReplica copies, LocalCopies());
  ASSIGN_OR_RETURN(const std::vector<Tensor> all, replicas_.OfAllReplicas(copies));
  if (aggregation_ == VariableAggregation::kOnlyFirstReplica) return all[0];
  return ReduceTensors(aggregation_ == VariableAggregation::kSum ? ReduceOp::kSum : ReduceOp::kMean, all, {});
}

absl::Status DistributedVariable::Assign(const Tensor& value) {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  Tensor copy = value;
  if (on_read_ && aggregation_ == VariableAggregation::kSum) {
    const int n = replicas_.strategy.num_replicas_in_sync();
    copy = Elementwise(value, value, [n](auto x, auto) { return x / n; });
  }
  for (const auto& store : replicas_.stores) RETURN_IF_ERROR(store->Write(name(), copy));
  return absl::OkStatus();
}

absl::Status DistributedVariable::AssignAdd(const Tensor& value) { return AddToCopies(value, 1, "assign_add"); }

absl::Status DistributedVariable::AssignSub(const Tensor& value) { return AddToCopies(value, -1, "assign_sub"); }

absl::Status DistributedVariable::AddToCopies(const Tensor& value, int sign, absl::string_view method) {
  RETURN_IF_ERROR(replicas_.CheckCrossReplicaContext());
  if (value.type() != spec_.type) {
    return absl::InvalidArgumentError(absl::StrCat("variable ", name(), " is ", spec_.type.ToString(),
                                                   ", the value of ", method, " ", value.type().ToString()));
  }
  const bool sums =
      aggregation_ == VariableAggregation::kSum && replicas_.strategy.num_replicas_in_sync() > 1 && !replicas_.one_copy;
  if (sums && on_read_) {
    return absl::InvalidArgumentError(absl::StrCat("SyncOnReadVariable does not support `", method,
                                                   "` in cross-replica context when aggregation is set to "
                                                   "`tf.VariableAggregation.SUM`: variable ",
                                                   name()));
  }
  if (sums) RETURN_IF_ERROR(CheckPlainSum(value));
  for (const auto& store : replicas_.stores) {
    ASSIGN_OR_RETURN(const Tensor old, store->Read(name()));
    const Tensor sum = Elementwise(old, value, [sign](auto x, auto y) { return x + sign * y; });
    RETURN_IF_ERROR(store->Write(name(), sum));
  }
  return absl::OkStatus();
}

}  // namespace official::distribute
