// merge_call. Expected values and texts marked [ran] are what TensorFlow 2.21 printed.

#include "utils/distribute/custom_loop/cross_replica_context.h"

#include <catch2/catch.hpp>
#include <mutex>
#include <string>
#include <vector>

#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/distribute/custom_loop/test_replicas.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using compute::Tensor;
using compute::Value;

DistributedVariable& Make(Replicas& replicas, const char* name,
                          VariableAggregation aggregation = VariableAggregation::kNone) {
  return **replicas.scope->CreateVariable(
      {.name = name, .initial_value = Tensor::Scalar(1.0f), .aggregation = aggregation});
}

TEST_CASE("A merge_call sees the values of all replicas, and each gets its results") {
  Replicas replicas(3);
  DistributedVariable &own = Make(replicas, "own"), &common = Make(replicas, "common", VariableAggregation::kMean);
  ReplicaFunction function([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    return context.MergeCall(
        [&](CrossReplicaContext& cross, absl::Span<const PerReplicaValue> values) {
          CHECK(cross.num_replicas_in_sync() == 3);
          const PerReplicaValue& x = values[0];
          const Value sum = cross.Reduce(ReduceOp::kSum, x);
          cross.Update(own, [&](Value copy) { return compute::Add(copy, x.own); });
          cross.Update(common, [&](Value) { return sum; });
          const Values all = cross.ResultsOfReplicas(x), counts = cross.ResultsOfReplicas(values[1]);
          CHECK(all.size() == 3);
          const PerReplicaValue turned = cross.FromReplicas({all[1], all[2], all[0]});
          return Values{sum, cross.Reduce(ReduceOp::kMean, x), x.own, all[1], turned.own, counts[2], cross.Read(own)};
        },
        inputs);
  });
  const PerReplica counts = {
      {Tensor::Scalar<int64_t>(5), Tensor::Scalar<int64_t>(6), Tensor::Scalar<int64_t>(1 << 30)}};
  const PerReplica x = {{Tensor::Scalar(1.0f), Tensor::Scalar(2.0f), Tensor::Scalar(3.0f)}};
  const auto results = replicas.scope->Run(function, {x, counts}).value();
  CHECK(Components(results[0]) == std::vector<Floats>{{6}, {6}, {6}});  // [ran]
  CHECK(Components(results[1]) == std::vector<Floats>{{2}, {2}, {2}});  // [ran]
  CHECK(Components(results[2]) == std::vector<Floats>{{1}, {2}, {3}});  // [ran]
  CHECK(Components(results[3]) == std::vector<Floats>{{2}, {2}, {2}});  // [ran]
  CHECK(Components(results[4]) == std::vector<Floats>{{2}, {3}, {1}});
  for (const Tensor& count : results[5].values) CHECK(count.scalar<int64_t>() == 1 << 30);
  CHECK(Components(results[6]) == std::vector<Floats>{{2}, {3}, {4}});
  CHECK(Components(own.LocalCopies().value()) == std::vector<Floats>{{2}, {3}, {4}});     // [ran]
  CHECK(Components(common.LocalCopies().value()) == std::vector<Floats>{{6}, {6}, {6}});  // [ran]
}

TEST_CASE("One replica merges with itself") {
  Replicas one(1);
  ReplicaFunction function([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    return context.MergeCall(
        [&](CrossReplicaContext& cross, absl::Span<const PerReplicaValue> values) {
          return Values{cross.ResultsOfReplicas(values[0])[0], cross.Reduce(ReduceOp::kMean, values[0])};
        },
        inputs);
  });
  const auto results = one.scope->Run(function, {Vector({1, 2})}).value();
  for (const PerReplica& result : results) CHECK(Components(result) == std::vector<Floats>{{1, 2}});
}

// The update is by the largest gradient that any replica has, element by element.
TEST_CASE("Gradients are merged by a rule of one's own, also between workers") {
  OnWorkers({{0, 1}, {1, 3}}, [](int, Strategy& strategy, StrategyScope& scope) {
    ReplicaFunction step([](ReplicaContext& context, absl::Span<const Value> inputs) {
      const Value w = context.graph().Variable({"w", {compute::DType::kFloat32, {2}}, compute::Initializer::Zeros()});
      const Values gradients = compute::Gradients(compute::Sum(compute::Mul(w, inputs[0])), {w});
      const Values largest = context.MergeCall(
          [](CrossReplicaContext& cross, absl::Span<const PerReplicaValue> values) {
            const Values all = cross.ResultsOfReplicas(values[0]);
            Value most = compute::Square(all[0]);
            for (const Value& gradient : all) most = compute::Maximum(most, compute::Square(gradient));
            return Values{compute::Sqrt(most)};
          },
          gradients);
      context.ApplyGradients(compute::GradientDescent, context.graph().Constant(Tensor::Scalar(1.0f)),
                             std::vector<compute::VariableGradient>{{w, largest[0]}},
                             /*experimental_aggregate_gradients=*/false);
      return Values{};
    });
    const PerReplica x = scope
                             .DistributeValuesFromFunction([](const ValueContext& context) -> absl::StatusOr<Tensor> {
                               const auto id = static_cast<float>(context.replica_id_in_sync_group);
                               return Vector({id, -4 - id * (2 - id)});
                             })
                             .value();
    const absl::Status status = scope.Run(step, {x}).status();
    const Floats w = Elements(scope.Variable("w").value()->Read().value());
    static std::mutex mutex;  // Catch2's checks are for one thread at a time
    const std::lock_guard<std::mutex> lock(mutex);
    CHECK(status.ok());
    CHECK(w == Floats{-2, -5});
    CHECK(strategy.num_replicas_in_sync() == 3);
  });
}

TEST_CASE("What a merge_call does not take") {
  Replicas replicas(2);
  const MergeFn nothing = [](CrossReplicaContext&, absl::Span<const PerReplicaValue>) { return Values{}; };
  CHECK_THAT(std::string(replicas
                             .Do([&](ReplicaContext& context) {
                               if (context.replica_id_in_sync_group() == 0) context.MergeCall(nothing, {});
                             })
                             .message()),
             StartsWith("Some replicas made a different number of replica_context().merge_call() calls"));  // [ran]
  DistributedVariable& v = Make(replicas, "v");
  const auto message = [&](const std::function<void(ReplicaContext&, CrossReplicaContext&, Value)>& inside) {
    const absl::Status status = replicas.Do([&](ReplicaContext& context) {
      context.MergeCall(
          [&](CrossReplicaContext& cross, absl::Span<const PerReplicaValue> values) {
            inside(context, cross, values[0].own);
            return Values{};
          },
          {Replicas::Constant(context, 1)});
    });
    return std::string(status.message());
  };
  const auto inside = StartsWith("Need to be inside `call_for_each_replica()`");  // [ran]
  CHECK_THAT(message([&](ReplicaContext& c, CrossReplicaContext&, Value) { c.MergeCall(nothing, {}); }), inside);
  CHECK_THAT(message([](ReplicaContext& c, CrossReplicaContext&, Value x) { c.AllReduce(ReduceOp::kSum, x); }), inside);
  CHECK_THAT(message([](ReplicaContext& c, CrossReplicaContext&, Value x) { c.AllGather(x, 0); }), inside);
  CHECK_THAT(message([&](ReplicaContext& c, CrossReplicaContext&, Value x) { c.Assign(v, x); }), inside);
  CHECK_THAT(message([&](ReplicaContext& c, CrossReplicaContext&, Value x) { c.AssignSub(v, x); }), inside);
  CHECK_THAT(message([](ReplicaContext& c, CrossReplicaContext&, Value) { c.SynchronizeBatchNormalization(1); }),
             inside);
  CHECK_THAT(message([](ReplicaContext& c, CrossReplicaContext&, Value) { c.UpdateMovingAverages({}); }), inside);
  CHECK_THAT(message([](ReplicaContext& c, CrossReplicaContext&, Value x) {
               c.ApplyGradients(compute::GradientDescent, x, {});
             }),
             inside);
  CHECK_THAT(message([](ReplicaContext&, CrossReplicaContext& cross, Value x) { cross.FromReplicas({x}); }),
             Contains("is made of 1 values, and there are 2 replicas"));
  CHECK(message([&](ReplicaContext& c, CrossReplicaContext&, Value) { c.Read(v); }).empty());
  // After an error the next function is in replica context again.
  CHECK(replicas.Do([&](ReplicaContext& c) { c.AssignAdd(v, Replicas::Constant(c, 1)); }).ok());
}

}  // namespace
}  // namespace official::distribute
