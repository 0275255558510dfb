// The rules of tf.distribute for custom training loops. Expected values marked [ran] are what TensorFlow 2.21 printed.

#include "utils/distribute/custom_loop/strategy_scope.h"

#include <catch2/catch.hpp>
#include <mutex>
#include <string>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/distribute/custom_loop/current_strategy.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/custom_loop/test_replicas.h"
#include "utils/distribute/tensor_bytes.h"
#include "utils/distribute/worker_splits.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Shape;
using compute::Tensor;
using compute::Value;

TEST_CASE("Run gives each replica its own component, and all of them a plain tensor") {
  Replicas replicas(3);
  int calls = 0;
  ReplicaFunction function([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    ++calls;
    CHECK(context.num_replicas_in_sync() == 3);
    return Values{compute::Add(compute::Mul(inputs[0], inputs[1]), Replicas::TimesId(context, 100)), inputs[0]};
  });
  const PerReplica own = {{Vector({1, 2}), Vector({3}), Vector({})}};
  const auto results = replicas.scope->Run(function, {own, Tensor::Scalar(10.0f)}).value();
  REQUIRE(results.size() == 2);
  CHECK(Components(results[0]) == std::vector<Floats>{{10, 20}, {130}, {}});
  CHECK(Components(results[1]) == std::vector<Floats>{{1, 2}, {3}, {}});
  CHECK(calls == 3);
  // The same types again: the graphs are there. The results of the first run stay.
  const auto again = replicas.scope->Run(function, {own, Tensor::Scalar(20.0f)}).value();
  CHECK(Components(again[0]) == std::vector<Floats>{{20, 40}, {160}, {}});
  CHECK(Components(results[0]) == std::vector<Floats>{{10, 20}, {130}, {}});
  CHECK(calls == 3);
}

TEST_CASE("What Run does not take") {
  Replicas replicas(3), others(2);
  ReplicaFunction identity([](ReplicaContext&, absl::Span<const Value> inputs) { return Values{inputs[0]}; });
  CHECK_THAT(std::string(replicas.scope->Run(identity, {PerReplica{{Vector({1})}}}).status().message()),
             Contains("has 1 components, and this worker 3 replicas"));
  REQUIRE(replicas.scope->Run(identity, {Vector({1})}).ok());
  CHECK_THAT(std::string(others.scope->Run(identity, {Vector({1})}).status().message()),
             Contains("Mixing different tf.distribute.Strategy objects"));
  ReplicaFunction uneven([](ReplicaContext& context, absl::Span<const Value> inputs) {
    return Values(1 + context.replica_id_in_sync_group(), inputs[0]);
  });
  CHECK_THAT(std::string(replicas.scope->Run(uneven, {Vector({1})}).status().message()),
             Contains("1 results on one replica and 2 on another"));
  ReplicaFunction unlike([](ReplicaContext& context, absl::Span<const Value> inputs) {
    return Values{context.replica_id_in_sync_group() == 0 ? inputs[0] : compute::Cast(inputs[0], DType::kInt64)};
  });
  CHECK(replicas.scope->Run(unlike, {Vector({1})}).status() ==
        absl::InvalidArgumentError("result 0 of the function is float32[1] on one replica and int64[1] on another; all "
                                   "must have the same dtype"));
  ReplicaFunction nested([&](ReplicaContext&, absl::Span<const Value> inputs) -> absl::StatusOr<Values> {
    RETURN_IF_ERROR(replicas.scope->Run(identity, {Vector({1})}).status());
    return Values{};
  });
  CHECK_THAT(std::string(replicas.scope->Run(nested, {}).status().message()),
             Contains("Method requires being in cross-replica context"));
  // After an error the scope is in cross-replica context again.
  CHECK(replicas.scope->Run(identity, {Vector({2})}).ok());
}

TEST_CASE("One copy of each variable is for devices that compute in the memory of the host") {
  const auto strategy =
      Strategy::Create({.name = "central_storage", .device_kind = Kind(), .num_replicas = 2, .num_threads = 1}).value();
  const absl::Status status = StrategyScope::Create(*strategy, /*seed=*/1).status();
  CHECK(status.ok() == (Kind() == "cpu"));
  if (status.ok()) return;
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains("the 2 devices have memory of their own; use mirrored"));
}

TEST_CASE("Reduce sums and averages, uneven batches by their number of elements") {
  Replicas replicas(3);
  StrategyScope& scope = *replicas.scope;
  const PerReplica uneven = {{Vector({16, 17, 18}), Vector({19, 20, 21}), Vector({22})}};
  CHECK(scope.Reduce(ReduceOp::kMean, uneven, 0).value().scalar<float>() == 19.0f);  // [ran]
  CHECK(scope.Reduce(ReduceOp::kSum, uneven, 0).value().scalar<float>() == 133.0f);
  CHECK(scope.Reduce(ReduceOp::kMean, uneven, -1).value().scalar<float>() == 19.0f);
  CHECK_THAT(std::string(scope.Reduce(ReduceOp::kMean, uneven).status().message()),
             Contains("replica 2 has float32[1], and replica 0 float32[3]"));
  CHECK_THAT(std::string(scope.Reduce(ReduceOp::kMean, uneven, 1).status().message()),
             Contains("axis 1 is not one of a value of shape [3]"));
  const PerReplica same = {{Vector({1, 10}), Vector({2, 20}), Vector({6, 0})}};
  CHECK(Elements(scope.Reduce(ReduceOp::kSum, same).value()) == Floats{9, 30});
  CHECK(Elements(scope.Reduce(ReduceOp::kMean, same).value()) == Floats{3, 10});
  const PerReplica counts = {{Tensor::Scalar<int64_t>(1), Tensor::Scalar<int64_t>(2), Tensor::Scalar<int64_t>(4)}};
  CHECK(scope.Reduce(ReduceOp::kSum, counts).value().scalar<int64_t>() == 7);
  CHECK(scope.Reduce(ReduceOp::kMean, counts).value().scalar<double>() == Approx(7 / 3.0));
  // Along the last of two axes.
  const PerReplica matrices = {
      {Tensor::Of<float>({2, 1}, {1, 2}), Tensor::Of<float>({2, 2}, {3, 4, 5, 6}), Tensor::Of<float>({2, 0}, {})}};
  CHECK(Elements(scope.Reduce(ReduceOp::kSum, matrices, 1).value()) == Floats{8, 13});
  CHECK(Elements(scope.Gather(matrices, 1).value()) == Floats{1, 3, 4, 2, 5, 6});
}

TEST_CASE("A plain value is its own mean and has no sum") {
  Replicas three(3), one(1);
  const Tensor value = Tensor::Scalar(5.0f);
  CHECK(three.scope->Reduce(ReduceOp::kMean, value).value().scalar<float>() == 5);
  CHECK(three.scope->Reduce(ReduceOp::kSum, Tensor::Scalar(0.0f)).value().scalar<float>() == 0);
  CHECK(three.scope->Reduce(ReduceOp::kSum, value).status().message() ==
        "A non-DistributedValues value 5 cannot be reduced with the given reduce op ReduceOp.SUM.");
  CHECK(one.scope->Reduce(ReduceOp::kSum, value).value().scalar<float>() == 5);
}

TEST_CASE("Code that was given no strategy finds that of its scope, or else the default one") {
  CHECK_FALSE(HasStrategy());
  Strategy& by_default = GetStrategy();
  CHECK(&by_default == &GetStrategy());
  CHECK(by_default.name() == "default");
  CHECK(by_default.num_replicas_in_sync() == 1);
  Replicas two(2), three(3);
  std::vector<Strategy*> found;
  const auto note = [&](ReplicaContext& context) {
    CHECK(HasStrategy());
    CHECK(GetStrategy().num_replicas_in_sync() == context.num_replicas_in_sync());
    found.push_back(&GetStrategy());
  };
  REQUIRE(two.Do(note).ok());
  REQUIRE(three
              .Do([&](ReplicaContext& context) {
                context.MergeCall(
                    [&](CrossReplicaContext&, absl::Span<const PerReplicaValue>) {
                      note(context);
                      return Values{};
                    },
                    {});
              })
              .ok());
  CHECK(found == std::vector<Strategy*>{two.strategy.get(), two.strategy.get(), three.strategy.get(),
                                        three.strategy.get(), three.strategy.get()});
  CHECK_FALSE(HasStrategy());
  CHECK(&GetStrategy() == &by_default);
}

TEST_CASE("The default strategy calls a function once, and reduces a value to itself") {
  const auto scope = StrategyScope::Create(GetStrategy(), /*seed=*/1).value();
  int calls = 0;
  ReplicaFunction function([&](ReplicaContext&, absl::Span<const Value> inputs) {
    ++calls;
    return Values{compute::Square(inputs[0])};
  });
  const auto results = scope->Run(function, {Vector({2, 3})}).value();
  CHECK(calls == 1);
  CHECK(Components(results[0]) == std::vector<Floats>{{4, 9}});
  CHECK(Elements(scope->Reduce(ReduceOp::kSum, Tensor::Scalar(1.0f)).value()) == Floats{1});
  CHECK(Elements(scope->Reduce(ReduceOp::kSum, results[0]).value()) == Floats{4, 9});
  CHECK(Elements(scope->Reduce(ReduceOp::kMean, results[0], /*axis=*/0).value()) == Floats{6.5});
}

TEST_CASE("Gather joins values of uneven length; local results are the components") {
  Replicas replicas(3);
  const PerReplica value =
      replicas.scope
          ->DistributeValuesFromFunction([](const ValueContext& context) -> absl::StatusOr<Tensor> {
            CHECK(context.num_replicas_in_sync == 3);
            const auto id = static_cast<float>(context.replica_id_in_sync_group);
            return Vector(Floats(context.replica_id_in_sync_group, id));
          })
          .value();
  CHECK(Components(value) == std::vector<Floats>{{}, {1}, {2, 2}});
  CHECK(Elements(replicas.scope->Gather(value, 0).value()) == Floats{1, 2, 2});
  CHECK(StrategyScope::LocalResults(value).size() == 3);
  CHECK(StrategyScope::LocalResults(Tensor::Scalar(1.0f)).size() == 1);
  const PerReplica scalars = {{Tensor(), Tensor(), Tensor()}};
  CHECK_THAT(std::string(replicas.scope->Gather(scalars, 0).status().message()), Contains("axis 0 is not one of"));
  const PerReplica unlike = {{Tensor(DType::kFloat32, {1, 2}), Tensor(DType::kFloat32, {1, 3}), Tensor()}};
  CHECK_THAT(std::string(replicas.scope->Gather(unlike, 0).status().message()),
             Contains("they may differ in dimension 0 only"));
}

TEST_CASE("Replicas that do not make the same sums are told so before they wait for each other") {
  Replicas replicas(2);
  const auto message = [&](const PerReplica& value, bool only_first) {
    ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value> inputs) {
      const bool sums = !only_first || context.replica_id_in_sync_group() == 0;
      return Values{sums ? context.AllReduce(ReduceOp::kSum, inputs[0]) : inputs[0]};
    });
    return std::string(replicas.scope->Run(step, {value}).status().message());
  };
  CHECK_THAT(message({{Vector({1}), Vector({1})}}, true),
             Contains("Some replicas made a different number of all_reduce calls, or of other values: replica 0 sums [ "
                      "float32[1] ], replica 1 [ ]; all replicas must sum the same"));
  CHECK_THAT(message({{Vector({1}), Vector({1, 2})}}, false),
             Contains("replica 0 sums [ float32[1] ], replica 1 [ float32[2] ]"));
  CHECK(message({{Vector({1}), Vector({1})}}, false).empty());
}

// The bytes of all that a worker sees of a few steps.
std::string Outcome(StrategyScope& scope) {
  std::string seen;
  const auto add = [&](const Tensor& tensor) {
    seen.append(static_cast<const char*>(tensor.raw_data()), tensor.num_bytes());
  };
  DistributedVariable& count = *scope
                                    .CreateVariable({.name = "count",
                                                     .initial_value = Tensor::Scalar(0.0f),
                                                     .synchronization = VariableSynchronization::kOnRead,
                                                     .aggregation = VariableAggregation::kSum})
                                    .value();
  ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    const int64_t n = inputs[0].shape().dim(0);
    const Value w =
        context.graph().Variable({"w", {DType::kFloat32, {3, 1}}, compute::Initializer::Normal(1), /*trainable=*/true});
    const Value y = compute::MatMul(inputs[0], w);
    context.AssignAdd(count, context.graph().Constant(Tensor::Scalar(static_cast<float>(n))));
    const Value loss = ComputeAverageLoss(compute::Square(y), {.global_batch_size = 10});
    context.ApplyGradients([](const auto& in, const auto& v) { return compute::Adam(in, v, {}); },
                           context.graph().Constant(Tensor::Scalar(0.1f)),
                           std::vector<compute::VariableGradient>{{w, compute::Gradients(loss, {w})[0]}});
    const Value id = context.graph().Constant(Tensor::Scalar<int64_t>(context.replica_id_in_sync_group()));
    return Values{loss, y, compute::Reshape(id, {1})};
  });
  for (int i = 0; i < 3; ++i) {
    const PerReplica x = scope
                             .DistributeValuesFromFunction([&](const ValueContext& context) -> absl::StatusOr<Tensor> {
                               const int id = context.replica_id_in_sync_group;
                               Tensor tensor(DType::kFloat32, {id, 3});
                               for (int64_t k = 0; k < 3 * id; ++k) {
                                 tensor.data<float>()[k] = std::sin(static_cast<float>(100 * i + 10 * id + k));
                               }
                               return tensor;
                             })
                             .value();
    const auto results = scope.Run(step, {x}).value();
    add(scope.Reduce(ReduceOp::kSum, results[0]).value());
    add(scope.Reduce(ReduceOp::kMean, results[1], 0).value());
    add(scope.Gather(results[1], 0).value());
    add(scope.Gather(results[2], 0).value());
  }
  add(count.Read().value());
  add(scope.Variable("w").value()->Read().value());
  return seen;
}

TEST_CASE("Workers that hold any part of the replicas see the bits of one process") {
  for (const int num_replicas : {2, 4, 5}) {
    Replicas one(num_replicas, "cpu");
    const std::string expected = Outcome(*one.scope);
    for (const auto& split : AllSplits(num_replicas, 3)) {
      if (split.size() == 1) continue;
      std::vector<std::string> seen(split.size());
      OnWorkers(split, [&](int w, Strategy&, StrategyScope& scope) { seen[w] = Outcome(scope); });
      for (const std::string& bytes : seen) {
        CAPTURE(num_replicas, split.size(), split[0].end);
        CHECK(bytes == expected);
      }
    }
  }
}

TEST_CASE("The chief's initial value is that of all workers, and local results are a worker's own") {
  OnWorkers({{0, 1}, {1, 3}}, [](int w, Strategy&, StrategyScope& scope) {
    const auto variable =
        scope.CreateVariable({.name = "v", .initial_value = Tensor::Scalar(static_cast<float>(5 + w))});
    const float value = (*variable)->Read().value().scalar<float>();
    const PerReplica ids = scope
                               .DistributeValuesFromFunction([](const ValueContext& context) -> absl::StatusOr<Tensor> {
                                 return Tensor::Scalar<int64_t>(context.replica_id_in_sync_group);
                               })
                               .value();
    static std::mutex mutex;  // Catch2's checks are for one thread at a time
    const std::lock_guard<std::mutex> lock(mutex);
    CHECK(value == 5);
    CHECK(ids.values.size() == (w == 0 ? 1u : 2u));
    CHECK(ids.values.back().scalar<int64_t>() == (w == 0 ? 0 : 2));
  });
}

TEST_CASE("A worker does not make a variable of another type than the chief's") {
  std::vector<absl::Status> made(2);
  std::vector<std::vector<std::string>> names(2);
  OnWorkers({{0, 1}, {1, 2}}, [&](int w, Strategy&, StrategyScope& scope) {
    made[w] =
        scope.CreateVariable({.name = "v", .initial_value = w == 0 ? Tensor::Scalar(5.0f) : Vector({5, 6})}).status();
    names[w] = scope.VariableNames();
  });
  CHECK(made[0].ok());
  CHECK(made[1] ==
        absl::InvalidArgumentError("the initial value of variable v is float32[2], and the chief's float32[]"));
  CHECK(names == std::vector<std::vector<std::string>>{{"v"}, {}});
}

TEST_CASE("A worker that sends another number of tensors than it has replicas is found out") {
  absl::Status status;
  OnWorkers({{0, 1}, {1, 2}}, [&](int w, Strategy& strategy, StrategyScope& scope) {
    if (w == 0) {
      status = scope.Gather({{Vector({1})}}, 0).status();
      return;
    }
    std::string two;
    for (int i = 0; i < 2; ++i) AppendTensor(Vector({1}), two);
    CHECK(strategy.GatherBytes(two).ok());
  });
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()), Contains("has sent another number of tensors than it has replicas, 1"));
}

}  // namespace
}  // namespace official::distribute
