// The rules of tf.distribute for custom training loops. Expected values marked [ran] are what TensorFlow 2.21 printed.

#include "utils/distribute/custom_loop/strategy_scope.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/tensor_bytes.h"
#include "utils/distribute/worker_splits.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Shape;
using compute::Tensor;
using compute::Value;
using Values = std::vector<Value>;
using Floats = std::vector<float>;

Tensor Vector(const Floats& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, absl::MakeConstSpan(values));
}

template <typename T = float>
std::vector<T> Elements(const Tensor& tensor) {
  return {tensor.flat<T>().begin(), tensor.flat<T>().end()};
}

// The elements of each component.
std::vector<Floats> Components(const PerReplica& value) {
  std::vector<Floats> all;
  for (const Tensor& tensor : value.values) all.push_back(Elements(tensor));
  return all;
}

// The kind of device under test.
std::string Kind() {
  const char* const kind = std::getenv("OP_TEST_KIND");
  return kind == nullptr ? "cpu" : kind;
}

// A strategy of so many devices, on the CPU logical ones, and its scope.
struct Replicas {
  explicit Replicas(int num_replicas, const std::string& kind = Kind())
      : strategy(Strategy::Create({.device_kind = kind, .num_replicas = num_replicas, .num_threads = 1}).value()),
        scope(StrategyScope::Create(*strategy, /*seed=*/1).value()) {}

  // Runs a function without results once.
  absl::Status Do(const std::function<void(ReplicaContext&)>& fn) {
    ReplicaFunction function([&](ReplicaContext& context, absl::Span<const Value>) {
      fn(context);
      return Values{};
    });
    return scope->Run(function, {}).status();
  }
  // A float scalar that is `value` times the replica's number.
  static Value TimesId(ReplicaContext& context, float value) {
    return context.graph().Constant(Tensor::Scalar(value * static_cast<float>(context.replica_id_in_sync_group())));
  }
  static Value Constant(ReplicaContext& context, float value) {
    return context.graph().Constant(Tensor::Scalar(value));
  }

  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<StrategyScope> scope;
};

// Calls f(worker, strategy, scope) for each of the workers, which divide the replicas, in a thread of its own.
template <typename F>
void OnWorkers(const std::vector<compute::Share>& split, const F& f) {
  const auto exchanges = MakeMemoryExchanges(static_cast<int>(split.size()));
  std::vector<std::thread> threads;
  for (size_t w = 0; w < split.size(); ++w) {
    threads.emplace_back([&, w] {
      StrategyOptions options{.num_replicas = static_cast<int>(split.back().end), .num_threads = 1};
      options.workers = {exchanges[w].get(), split};
      const auto strategy = Strategy::Create(options).value();
      // Only the chief's seed counts.
      const auto scope = StrategyScope::Create(*strategy, /*seed=*/1 + w).value();
      f(static_cast<int>(w), *strategy, *scope);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

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

TEST_CASE("Replicas sum, average and gather while they run") {
  Replicas replicas(3);
  ReplicaFunction function([](ReplicaContext& context, absl::Span<const Value> inputs) {
    return Values{context.AllReduce(ReduceOp::kSum, inputs[0]), context.AllReduce(ReduceOp::kMean, inputs[0]),
                  context.AllGather(inputs[0], -1), context.AllReduce(ReduceOp::kSum, inputs[1])};
  });
  const int64_t large = (int64_t{1} << 60) + 12345678901;
  const PerReplica integers = {
      {Tensor::Scalar<int64_t>(large), Tensor::Scalar<int64_t>(-3), Tensor::Scalar<int64_t>((1 << 24) + 1)}};
  const auto results =
      replicas.scope->Run(function, {PerReplica{{Vector({1, 2}), Vector({3, 4}), Vector({5, 9})}}, integers}).value();
  for (int r = 0; r < 3; ++r) {
    CHECK(Elements(results[0].values[r]) == Floats{9, 15});
    CHECK(Elements(results[1].values[r]) == Floats{3, 5});
    CHECK(Elements(results[2].values[r]) == Floats{1, 2, 3, 4, 5, 9});
    CHECK(results[3].values[r].scalar<int64_t>() == large - 3 + (1 << 24) + 1);
  }
}

TEST_CASE("Values without elements are their own sums") {
  OnWorkers({{0, 1}, {1, 2}}, [](int, Strategy&, StrategyScope& scope) {
    bool same = true;
    ReplicaFunction function([&](ReplicaContext& context, absl::Span<const Value> inputs) {
      const Value sum = context.AllReduce(ReduceOp::kSum, inputs[0]), all = context.AllGather(inputs[0], 1);
      same = sum == inputs[0];
      return Values{sum, all};
    });
    const auto results = scope.Run(function, {Tensor(DType::kFloat32, {0, 3})}).value();
    static std::mutex mutex;  // Catch2's checks are for one thread at a time
    const std::lock_guard<std::mutex> lock(mutex);
    CHECK(same);
    CHECK(results[0].values[0].shape() == Shape{0, 3});
    CHECK(results[1].values[0].shape() == Shape{0, 6});
  });
}

TEST_CASE("Replicas assign a mirrored variable what they aggregate") {
  Replicas replicas(3);
  using enum VariableAggregation;
  const auto make = [&](const char* name, VariableAggregation aggregation) {
    return replicas.scope
        ->CreateVariable({.name = name, .initial_value = Tensor::Scalar(0.0f), .aggregation = aggregation})
        .value();
  };
  DistributedVariable &sum = *make("sum", kSum), &mean = *make("mean", kMean), &none = *make("none", kNone),
                      &first = *make("first", kOnlyFirstReplica);
  REQUIRE(replicas
              .Do([&](ReplicaContext& context) {
                context.AssignAdd(sum, Replicas::Constant(context, 1));
                context.Assign(mean, Replicas::TimesId(context, 3));
                context.AssignAdd(none, Replicas::TimesId(context, 1));
                context.Assign(first, compute::Add(Replicas::TimesId(context, 1), Replicas::Constant(context, 7)));
              })
              .ok());
  const auto copies = [](const DistributedVariable& variable) { return Components(variable.LocalCopies().value()); };
  CHECK(copies(sum) == std::vector<Floats>{{3}, {3}, {3}});   // [ran]
  CHECK(copies(mean) == std::vector<Floats>{{3}, {3}, {3}});  // [ran] of 0, 3, 6
  CHECK(copies(none) == std::vector<Floats>{{0}, {1}, {2}});  // [ran] copies may diverge
  CHECK(copies(first) == std::vector<Floats>{{7}, {7}, {7}});
  CHECK(none.Read().value().scalar<float>() == 0);
  // In cross-replica context.
  REQUIRE(none.Assign(Tensor::Scalar(4.0f)).ok());
  CHECK(copies(none) == std::vector<Floats>{{4}, {4}, {4}});
  REQUIRE(mean.AssignSub(Tensor::Scalar(5.0f)).ok());
  CHECK(copies(mean) == std::vector<Floats>{{-2}, {-2}, {-2}});
  CHECK(sum.AssignAdd(Tensor::Scalar(1.0f)).message() ==
        "A non-DistributedValues value 1 cannot be reduced with the given reduce op ReduceOp.SUM.");  // [ran]
}

TEST_CASE("A replica reads what it has assigned, and its results are from before later writes") {
  Replicas replicas(2);
  DistributedVariable& a = *replicas.scope->CreateVariable({.name = "a", .initial_value = Vector({1, 2})}).value();
  DistributedVariable& b = *replicas.scope->CreateVariable({.name = "b", .initial_value = Vector({10, 20})}).value();
  ReplicaFunction swap([&](ReplicaContext& context, absl::Span<const Value>) {
    const Value old_a = context.Read(a), old_b = context.Read(b);
    context.Assign(a, old_b);
    context.Assign(b, old_a);
    context.AssignSub(a, context.Read(b));
    return Values{old_a, context.Read(a), context.Read(b)};
  });
  const auto results = replicas.scope->Run(swap, {}).value();
  CHECK(Components(results[0]) == std::vector<Floats>{{1, 2}, {1, 2}});
  CHECK(Components(results[1]) == std::vector<Floats>{{9, 18}, {9, 18}});
  CHECK(Components(results[2]) == std::vector<Floats>{{1, 2}, {1, 2}});
  CHECK(Elements(a.Read().value()) == Floats{9, 18});
  CHECK(Elements(b.Read().value()) == Floats{1, 2});
}

TEST_CASE("An int64 scalar counts: one step for all replicas, or one for each") {
  Replicas replicas(3);
  using enum VariableAggregation;
  const auto make = [&](const char* name, VariableAggregation aggregation) {
    return replicas.scope
        ->CreateVariable({.name = name, .initial_value = Tensor::Scalar<int64_t>(0), .aggregation = aggregation})
        .value();
  };
  DistributedVariable &iterations = *make("iterations", kOnlyFirstReplica), &examples = *make("examples", kSum);
  CHECK_FALSE(iterations.spec().trainable);
  for (int step = 0; step < 2; ++step) {
    REQUIRE(replicas
                .Do([&](ReplicaContext& context) {
                  context.AssignAdd(iterations, context.graph().Constant(Tensor::Scalar<int64_t>(1)));
                  context.AssignAdd(examples, context.graph().Constant(
                                                  Tensor::Scalar<int64_t>(4 + context.replica_id_in_sync_group())));
                })
                .ok());
  }
  CHECK(iterations.Read().value().scalar<int64_t>() == 2);
  CHECK(examples.Read().value().scalar<int64_t>() == 30);
}

TEST_CASE("An on-read variable is each replica's own until it is read") {
  Replicas replicas(3);
  using enum VariableAggregation;
  const auto make = [&](const char* name, const Tensor& initial, VariableAggregation aggregation) {
    return replicas.scope
        ->CreateVariable({.name = name,
                          .initial_value = initial,
                          .synchronization = VariableSynchronization::kOnRead,
                          .aggregation = aggregation})
        .value();
  };
  DistributedVariable &sum = *make("sum", Tensor::Scalar(6.0f), kSum),
                      &mean = *make("mean", Tensor::Scalar(6.0f), kMean),
                      &first = *make("first", Tensor::Scalar(6.0f), kOnlyFirstReplica),
                      &none = *make("none", Tensor::Scalar(6.0f), kNone),
                      &integer = *make("integer", Tensor::Scalar<int64_t>(0), kSum);
  CHECK_FALSE(sum.spec().trainable);
  CHECK(sum.Read().value().scalar<float>() == 18);  // [ran]
  CHECK(mean.Read().value().scalar<float>() == 6);
  REQUIRE(replicas
              .Do([&](ReplicaContext& context) {
                for (const DistributedVariable* variable : {&sum, &mean, &first}) {
                  context.AssignAdd(*variable, Replicas::TimesId(context, 3));
                }
              })
              .ok());
  CHECK(Components(sum.LocalCopies().value()) == std::vector<Floats>{{6}, {9}, {12}});
  CHECK(sum.Read().value().scalar<float>() == 27);
  CHECK(mean.Read().value().scalar<float>() == 9);
  CHECK(first.Read().value().scalar<float>() == 6);
  CHECK_THAT(std::string(none.Read().status().message()),
             Contains("Could not convert from `tf.VariableAggregation` VariableAggregationV2.NONE "
                      "to`tf.distribute.ReduceOp` type"));
  REQUIRE(sum.Assign(Tensor::Scalar(9.0f)).ok());
  CHECK(Components(sum.LocalCopies().value()) == std::vector<Floats>{{3}, {3}, {3}});  // [ran]
  CHECK(sum.Read().value().scalar<float>() == 9);                                      // [ran]
  REQUIRE(integer.Assign(Tensor::Scalar<int64_t>(7)).ok());
  CHECK(integer.LocalCopies().value().values[2].scalar<int64_t>() == 2);  // [ran]
  CHECK(integer.Read().value().scalar<int64_t>() == 6);                   // [ran] the remainder is lost
  for (const absl::Status& status : {sum.AssignAdd(Tensor::Scalar(1.0f)), sum.AssignSub(Tensor::Scalar(1.0f))}) {
    CHECK_THAT(std::string(status.message()),
               Contains("in cross-replica context when aggregation is set to `tf.VariableAggregation.SUM`"));
  }
  REQUIRE(mean.AssignAdd(Tensor::Scalar(1.0f)).ok());
  CHECK(Components(mean.LocalCopies().value()) == std::vector<Floats>{{7}, {10}, {13}});
  // One replica has nothing to divide.
  Replicas one(1);
  DistributedVariable& alone = *one.scope
                                    ->CreateVariable({.name = "sum",
                                                      .initial_value = Tensor::Scalar(6.0f),
                                                      .synchronization = VariableSynchronization::kOnRead,
                                                      .aggregation = kSum})
                                    .value();
  REQUIRE(alone.AssignAdd(Tensor::Scalar(1.0f)).ok());
  CHECK(alone.Read().value().scalar<float>() == 7);
}

TEST_CASE("What a variable cannot be") {
  Replicas replicas(2);
  const auto message = [&](const VariableOptions& options) {
    return std::string(replicas.scope->CreateVariable(options).status().message());
  };
  CHECK(message({.name = "v", .initial_value = Tensor(), .synchronization = VariableSynchronization::kNone}) ==
        "`NONE` variable synchronization mode is not supported with tf.distribute strategy. Please change the "
        "`synchronization` for variable: v");
  CHECK(
      message({.name = "v", .initial_value = Tensor::Scalar<int64_t>(0), .aggregation = VariableAggregation::kMean}) ==
      "creating distributed tf.Variable with aggregation=MEAN and a non-floating dtype is not supported, please use "
      "a different aggregation or dtype");
  REQUIRE(message({.name = "v", .initial_value = Tensor()}).empty());
  CHECK_THAT(message({.name = "v", .initial_value = Tensor()}), Contains("there is a variable v already"));
  DistributedVariable& v = *replicas.scope->Variable("v").value();
  CHECK(replicas.scope->Variable("w").status().code() == absl::StatusCode::kNotFound);
  CHECK(v.Assign(Vector({1, 2})).code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(v.AssignAdd(Vector({1, 2})).message()),
             Contains("variable v is float32[], the value of assign_add float32[2]"));
  CHECK_THAT(std::string(replicas.Do([&](ReplicaContext& c) {
                                   c.Assign(v, c.graph().Constant(Vector({1, 2})));
                                 })
                             .message()),
             Contains("variable v is float32[], the value assigned in a replica float32[2]"));
  absl::Status in_replica;
  REQUIRE(replicas.Do([&](ReplicaContext&) { in_replica = v.Assign(Tensor()); }).ok());
  CHECK_THAT(std::string(in_replica.message()), Contains("Method requires being in cross-replica context"));
}

// The result of ComputeAverageLoss on each of three replicas, or its error.
absl::StatusOr<float> AverageOf(const Tensor& per_example, std::optional<int64_t> global_batch_size,
                                const std::optional<Tensor>& weight = {}) {
  Replicas replicas(3);
  ReplicaFunction function([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    AverageLoss options{.global_batch_size = global_batch_size};
    if (weight) options.sample_weight = context.graph().Constant(*weight);
    return Values{ComputeAverageLoss(inputs[0], options)};
  });
  ASSIGN_OR_RETURN(const auto results, replicas.scope->Run(function, {per_example}));
  return results[0].values[2].scalar<float>();
}

TEST_CASE("The average loss is that of the global batch") {
  const Tensor losses = Vector({1, 2, 3});
  CHECK(AverageOf(losses, 12).value() == 0.5f);             // [ran]
  CHECK(AverageOf(losses, 0).value() == 0);                 // [ran]
  CHECK(AverageOf(losses, {}).value() == Approx(6.0 / 9));  // [ran] 3 examples on each of 3 replicas
  CHECK(AverageOf(losses, 12, Vector({2, 0, 1})).value() == 5.0f / 12);
  const Tensor matrix = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  CHECK(AverageOf(matrix, 5).value() == 2);
  CHECK(AverageOf(losses, 12, Tensor::Of<float>({3, 1}, {2, 0, 1})).value() == 5.0f / 12);
  CHECK(AverageOf(matrix, 12, Vector({1, 0})).value() == 3.0f / 12);
  CHECK(AverageOf(matrix, 12, Tensor::Of<float>({1, 2}, {1, 0})).value() == 4.0f / 12);
  CHECK(AverageOf(matrix, 12, Tensor::Scalar(2.0f)).value() == 20.0f / 12);
  CHECK(AverageOf(losses, 12, Tensor(DType::kFloat32, {3, 3})).status() ==
        absl::InvalidArgumentError(
            "sample_weight has the shape [3,3], which is not broadcast to that of the values, [3]"));
  CHECK(AverageOf(Vector({1}), 12, losses).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(AverageOf(losses, -1).status().message() == "global_batch_size must be non-negative.");
  CHECK(AverageOf(Tensor::Scalar(1.0f), 12).status().message() ==
        "Invalid value passed for `per_example_loss`. Expected a tensor with at least rank 1.");
}

TEST_CASE("A regularization loss is divided by the number of replicas") {
  Replicas replicas(3);
  ReplicaFunction function(
      [](ReplicaContext&, absl::Span<const Value> inputs) { return Values{ScaleRegularizationLoss(inputs[0])}; });
  const auto results = replicas.scope->Run(function, {Vector({1, 2, 3})}).value();
  CHECK(results[0].values[1].scalar<float>() == 2);  // [ran] 6 -> 2
}

// One step of gradient descent, with rate 1, on the mean over the global batch of 8 of (x w)^2 / 2, which has the
// gradient w mean(x^2).
ReplicaFunction LeastSquares() {
  return ReplicaFunction([](ReplicaContext& context, absl::Span<const Value> inputs) {
    const Value w = context.graph().Variable({"w", {DType::kFloat32, {1, 1}}, compute::Initializer::Ones()});
    const Value half = context.graph().Constant(Tensor::Scalar(0.5f));
    const Value loss = ComputeAverageLoss(compute::Mul(half, compute::Square(compute::MatMul(inputs[0], w))),
                                          {.global_batch_size = 8});
    const Values trainable = context.TrainableVariables();
    const Values gradients = compute::Gradients(loss, trainable);
    context.ApplyGradients(compute::GradientDescent, inputs[1],
                           std::vector<compute::VariableGradient>{{w, gradients[0]}});
    return Values{loss};
  });
}

Tensor Column(const Floats& values) { return Vector(values).Reshaped({static_cast<int64_t>(values.size()), 1}); }

TEST_CASE("Gradients of uneven and empty batches add up to that of the global batch") {
  Replicas replicas(3);
  ReplicaFunction step = LeastSquares();
  // Mean of squares 204 / 8.
  const PerReplica x = {{Column({1, 2, 3, 4, 5}), Column({6, 7, 8}), Column({})}};
  const auto losses = replicas.scope->Run(step, {x, Tensor::Scalar(0.01f)}).value();
  CHECK(replicas.scope->Reduce(ReduceOp::kSum, losses[0]).value().scalar<float>() == Approx(204.0 / 16));
  const PerReplica w = replicas.scope->Variable("w").value()->LocalCopies().value();
  for (const Tensor& copy : w.values) {
    CHECK(copy.scalar<float>() == Approx(1 - 0.01 * 204 / 8));
    CHECK(copy.scalar<float>() == w.values[0].scalar<float>());
  }
}

TEST_CASE("An update needs a gradient, and skips the variables without one") {
  Replicas replicas(2);
  const auto run = [&](bool uses_variable) {
    ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value> inputs) {
      const Value used = context.graph().Variable({"used", {DType::kFloat32, {}}, compute::Initializer::Ones()});
      const Value unused = context.graph().Variable({"unused", {DType::kFloat32, {}}, compute::Initializer::Ones()});
      const Value loss = uses_variable ? compute::Mul(used, inputs[0]) : inputs[0];
      const Values gradients = compute::Gradients(loss, {used, unused});
      context.ApplyGradients(compute::GradientDescent, inputs[0],
                             std::vector<compute::VariableGradient>{{used, gradients[0]}, {unused, gradients[1]}});
      return Values{};
    });
    return replicas.scope->Run(step, {Tensor::Scalar(0.5f)}).status();
  };
  CHECK(run(false).message() == "No gradients provided for any variable: ['used', 'unused'].");
  REQUIRE(run(true).ok());
  CHECK(replicas.scope->Variable("used").value()->Read().value().scalar<float>() == 0.5f);  // 1 - 0.5 * (0.5 + 0.5)
  CHECK(replicas.scope->Variable("unused").value()->Read().value().scalar<float>() == 1);
}

TEST_CASE("Gradients that the caller has summed are not summed again") {
  Replicas replicas(2);
  ReplicaFunction step([](ReplicaContext& context, absl::Span<const Value> inputs) {
    const Value w = context.graph().Variable({"w", {DType::kFloat32, {}}, compute::Initializer::Zeros()});
    const Value gradient = context.AllReduce(ReduceOp::kSum, inputs[0]);
    context.ApplyGradients(compute::GradientDescent, context.graph().Constant(Tensor::Scalar(1.0f)),
                           std::vector<compute::VariableGradient>{{w, gradient}},
                           /*experimental_aggregate_gradients=*/false);
    return Values{};
  });
  REQUIRE(replicas.scope->Run(step, {Tensor::Scalar(3.0f)}).ok());
  CHECK(replicas.scope->Variable("w").value()->Read().value().scalar<float>() == -6);
}

TEST_CASE("An update of gradients comes after the assignments before it") {
  Replicas replicas(2);
  DistributedVariable& v = *replicas.scope->CreateVariable({.name = "v", .initial_value = Vector({1})}).value();
  ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    context.Assign(v, inputs[0]);
    const Value stored = context.graph().Variable(v.spec());
    context.ApplyGradients(compute::GradientDescent, context.graph().Constant(Tensor::Scalar(1.0f)),
                           std::vector<compute::VariableGradient>{{stored, inputs[0]}});
    context.AssignAdd(v, inputs[0]);
    return Values{};
  });
  REQUIRE(replicas.scope->Run(step, {Vector({10})}).ok());
  CHECK(Elements(v.Read().value()) == Floats{0});  // 10 - (10 + 10) + 10
}

TEST_CASE("Moving averages take in the means over the replicas; an empty batch leaves its part as it is") {
  Replicas replicas(2);
  ReplicaFunction step([](ReplicaContext& context, absl::Span<const Value> inputs) {
    compute::Layers layers(context.graph(), DType::kFloat32);
    const Value y = layers.BatchNormalization(inputs[0], {.training = true});
    context.UpdateMovingAverages(layers.moving_averages(), /*momentum=*/0.5);
    return Values{y};
  });
  const auto averages = [&](const char* part) {
    return Components(
        replicas.scope->Variable(std::string("batch_normalization/") + part).value()->LocalCopies().value());
  };
  REQUIRE(replicas.scope->Run(step, {PerReplica{{Column({1, 3}), Column({4, 8, 12})}}}).ok());
  // The copies of TensorFlow's replicas: means 1 and 4, of 0 and 2, 0 and 8; variances 1.5 and 8.5, of 1 and 2, 1
  // and 16.
  CHECK(averages("moving_mean") == std::vector<Floats>{{2.5}, {2.5}});
  CHECK(averages("moving_variance") == std::vector<Floats>{{5}, {5}});
  // Ours: in TensorFlow the second replica would keep its own copy, of mean 4, not the mean of both, 2.5.
  REQUIRE(replicas.scope->Run(step, {PerReplica{{Column({4, 4}), Column({})}}}).ok());
  CHECK(averages("moving_mean") == std::vector<Floats>{{2.875}, {2.875}});    // (3.25 + 2.5) / 2
  CHECK(averages("moving_variance") == std::vector<Floats>{{3.75}, {3.75}});  // (2.5 + 5) / 2
}

TEST_CASE("No moving averages, or those of a failed graph, are not updated") {
  Replicas replicas(2);
  CHECK(replicas.Do([](ReplicaContext& context) { context.UpdateMovingAverages({}); }).ok());
  const absl::Status failed = replicas.Do([](ReplicaContext& context) {
    const Value mean_of_nothing = compute::Mean(context.graph().Constant(Column({})), {0});
    context.graph().Fail(absl::InvalidArgumentError("no variable"));
    context.UpdateMovingAverages(std::vector<compute::MovingAverage>{{Value(), mean_of_nothing}});
  });
  CHECK(failed == absl::InvalidArgumentError("no variable"));
}

TEST_CASE("A variable that a function makes is as trainable as it was made") {
  Replicas replicas(2);
  ReplicaFunction step([](ReplicaContext& context, absl::Span<const Value> inputs) {
    compute::Layers layers(context.graph(), DType::kFloat32);
    return Values{layers.BatchNormalization(inputs[0], {.training = true})};
  });
  REQUIRE(replicas.scope->Run(step, {Column({1, 3})}).ok());
  CHECK_FALSE(replicas.scope->Variable("batch_normalization/moving_mean").value()->spec().trainable);
  CHECK(replicas.scope->Variable("batch_normalization/gamma").value()->spec().trainable);
}

// The outputs, and the gradients of the input, of synchronized batch normalization of rows [n, 1] that are divided
// among the replicas, with the loss sum(y^3).
std::vector<Floats> SynchronizedOutputs(const PerReplica& x) {
  Replicas replicas(static_cast<int>(x.values.size()));
  ReplicaFunction step([](ReplicaContext& context, absl::Span<const Value> inputs) {
    context.SynchronizeBatchNormalization(inputs[0].shape().dim(0));
    compute::Layers layers(context.graph(), DType::kFloat32);
    const Value y = layers.BatchNormalization(inputs[0], {.training = true, .synchronized = true});
    context.UpdateMovingAverages(layers.moving_averages(), /*momentum=*/0);
    const Value loss = compute::Sum(compute::Mul(y, compute::Square(y)));
    return Values{y, compute::Gradients(loss, {inputs[0]})[0]};
  });
  const auto results = replicas.scope->Run(step, {x}).value();
  std::vector<Floats> all;
  for (const PerReplica& result : results) all.push_back(Elements(replicas.scope->Gather(result, 0).value()));
  for (const char* part : {"moving_mean", "moving_variance"}) {
    all.push_back(
        Elements(replicas.scope->Variable(absl::StrCat("batch_normalization/", part)).value()->Read().value()));
  }
  return all;
}

TEST_CASE("Synchronized batch normalization has the statistics of all replicas, also of those without examples") {
  const std::vector<Floats> one = SynchronizedOutputs({{Column({1, 2, 4, 7, 11, 5})}});
  const std::vector<Floats> divided = SynchronizedOutputs({{Column({1, 2, 4, 7}), Column({}), Column({11, 5})}});
  CHECK(one[2] == Floats{5});  // the mean
  REQUIRE(one.size() == divided.size());
  for (size_t i = 0; i < one.size(); ++i) {
    REQUIRE(divided[i].size() == one[i].size());
    for (size_t k = 0; k < one[i].size(); ++k) CHECK(divided[i][k] == Approx(one[i][k]).epsilon(1e-5).margin(1e-5));
  }
}

TEST_CASE("What replicas sum in place is not the caller's tensor") {
  Replicas replicas(2);
  ReplicaFunction step([](ReplicaContext& context, absl::Span<const Value> inputs) {
    return Values{context.AllReduce(ReduceOp::kSum, inputs[0])};
  });
  const PerReplica own = {{Vector({1}), Vector({2})}};
  CHECK(Components(replicas.scope->Run(step, {own}).value()[0]) == std::vector<Floats>{{3}, {3}});
  CHECK(Components(own) == std::vector<Floats>{{1}, {2}});
}

TEST_CASE("A result that is computed from nothing is an error") {
  Replicas replicas(2);
  ReplicaFunction step([](ReplicaContext&, absl::Span<const Value> inputs) { return Values{inputs[0], Value()}; });
  CHECK_THAT(std::string(replicas.scope->Run(step, {Vector({1})}).status().message()),
             Contains("result 1 of the function is no value"));
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
             Contains("replica 0 sums [ float32[1] ], replica 1 [ ]; all replicas must sum the same"));
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
