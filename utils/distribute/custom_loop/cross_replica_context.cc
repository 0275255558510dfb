#include "utils/distribute/custom_loop/cross_replica_context.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/distribute/custom_loop/replica_context.h"

namespace official::distribute {

using compute::Value;

compute::Graph& CrossReplicaContext::graph() { return replica_.graph(); }

int CrossReplicaContext::num_replicas_in_sync() const { return replica_.num_replicas_in_sync(); }

Value CrossReplicaContext::Reduce(ReduceOp op, const PerReplicaValue& value) { return replica_.Sum(op, value.own); }

std::vector<Value> CrossReplicaContext::ResultsOfReplicas(const PerReplicaValue& value) {
  return replica_.OfEach(value.own);
}

PerReplicaValue CrossReplicaContext::FromReplicas(absl::Span<const Value> values) {
  if (static_cast<int>(values.size()) == num_replicas_in_sync()) {
    return {values[replica_.replica_id_in_sync_group()]};
  }
  graph().Fail(
      absl::InvalidArgumentError(absl::StrCat("a value for each replica is made of ", values.size(),
                                              " values, and there are ", num_replicas_in_sync(), " replicas")));
  return {};
}

Value CrossReplicaContext::Read(const DistributedVariable& variable) { return replica_.Read(variable); }

void CrossReplicaContext::Update(const DistributedVariable& variable, absl::FunctionRef<Value(Value copy)> fn) {
  replica_.Store(variable.spec(), fn(replica_.Read(variable)), Value());
}

}  // namespace official::distribute
