// The rules of tf.distribute for custom training loops. Expected values marked [ran] are what TensorFlow 2.21 printed.

#include "utils/distribute/custom_loop/distributed_variable.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/distribute/custom_loop/test_replicas.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using compute::DType;
using compute::Shape;
using compute::Tensor;
using compute::Value;

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
               StartsWith("SyncOnReadVariable does not support `assign_") &&
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

}  // namespace
}  // namespace official::distribute
