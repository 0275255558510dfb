// The rules of CentralStorageStrategy: one copy of each variable, which replicas read and one device updates.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/custom_loop/mean_metric.h"
#include "utils/distribute/custom_loop/strategy_scope.h"
#include "utils/distribute/custom_loop/test_replicas.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

// Three replicas that share variables, or have copies of them.
struct Job {
  explicit Job(const std::string& name = "central_storage")
      : strategy(Strategy::Create({.name = name, .num_replicas = 3, .num_threads = 2}).value()),
        scope(StrategyScope::Create(*strategy, /*seed=*/1).value()) {}

  DistributedVariable* Make(const std::string& name, Tensor value, VariableAggregation aggregation,
                            VariableSynchronization synchronization = VariableSynchronization::kAuto) {
    return scope
        ->CreateVariable({.name = name,
                          .initial_value = std::move(value),
                          .synchronization = synchronization,
                          .aggregation = aggregation})
        .value();
  }
  // Runs a function without results once.
  absl::Status Do(const std::function<void(ReplicaContext&)>& fn) {
    ReplicaFunction function([&](ReplicaContext& context, absl::Span<const Value>) {
      fn(context);
      return Values{};
    });
    return scope->Run(function, {}).status();
  }

  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<StrategyScope> scope;
};

float Read(const DistributedVariable* variable) { return variable->Read().value().scalar<float>(); }

std::string BytesOf(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(tensor.num_bytes())};
}

TEST_CASE("Training has the bits of mirrored replicas, with one copy of each variable") {
  const OptimizerFn optimizers[] = {
      [](const auto& in, auto of) { return compute::GradientDescent(in, of); },
      [](const auto& in, auto of) { return compute::Momentum(in, of, {.momentum = 0.9}); },
      [](const auto& in, auto of) { return compute::Adam(in, of, {}); }};
  const int optimizer = GENERATE(0, 1, 2);
  Job central, mirrored("mirrored");
  const ReplicaFn step_fn = [&](ReplicaContext& context, absl::Span<const Value> in) -> absl::StatusOr<Values> {
    compute::Layers layers(context.graph(), DType::kFloat32);
    const Value hidden = layers.BatchNormalization(layers.Dense(in[0], 5), {.training = true});
    const Value errors = compute::Square(compute::Sub(layers.Dense(hidden, 1), in[1]));
    const Value loss = ComputeAverageLoss(errors, {.global_batch_size = 7});
    const std::vector<Value> variables = context.TrainableVariables();
    const std::vector<Value> gradients = compute::Gradients(loss, variables);
    std::vector<compute::VariableGradient> updates;
    for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
    context.ApplyGradients(optimizers[optimizer], context.graph().Constant(Tensor::Scalar(0.1f)), updates);
    context.UpdateMovingAverages(layers.moving_averages(), 0.9);
    return Values{loss};
  };
  ReplicaFunction of_central(step_fn), of_mirrored(step_fn);
  // Shares of different sizes, in every step other ones.
  for (int step = 0; step < 4; ++step) {
    PerReplica x, y;
    for (int r = 0; r < 3; ++r) {
      Floats rows((r + step) % 3 == 0 ? 3 : 2), labels(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        rows[i] = static_cast<float>(step + r) - 0.5f * static_cast<float>(i);
        labels[i] = 2 * rows[i] + 1;
      }
      x.values.push_back(Column(rows));
      y.values.push_back(Column(labels));
    }
    const auto losses = central.scope->Run(of_central, {x, y}).value();
    CHECK(Components(losses[0]) == Components(mirrored.scope->Run(of_mirrored, {x, y}).value()[0]));
  }
  REQUIRE(central.scope->VariableNames() == mirrored.scope->VariableNames());
  CHECK(central.scope->VariableNames().size() >= 8);
  for (const std::string& name : central.scope->VariableNames()) {
    INFO(name);
    CHECK(BytesOf(central.scope->ReadTracked(name).value()) == BytesOf(mirrored.scope->ReadTracked(name).value()));
    CHECK(central.scope->Variable(name).value()->LocalCopies().value().values.size() == 1);
    CHECK(mirrored.scope->Variable(name).value()->LocalCopies().value().values.size() == 3);
  }
}

TEST_CASE("An assignment in a replica is aggregated, and made once") {
  Job job;
  const auto make = [&](const char* name, VariableAggregation aggregation) {
    return job.Make(name, Tensor::Scalar(10.0f), aggregation);
  };
  DistributedVariable* const sum = make("sum", VariableAggregation::kSum);
  DistributedVariable* const mean = make("mean", VariableAggregation::kMean);
  DistributedVariable* const first = make("first", VariableAggregation::kOnlyFirstReplica);
  DistributedVariable* const count =
      job.Make("count", Tensor::Scalar<int64_t>(5), VariableAggregation::kOnlyFirstReplica);
  REQUIRE(job.Do([&](ReplicaContext& context) {
               const Value id = Replicas::TimesId(context, 3);  // 0, 3, 6
               context.AssignAdd(*sum, Replicas::Constant(context, 1));
               context.Assign(*mean, id);
               context.AssignSub(*first, compute::Add(id, Replicas::Constant(context, 2)));
               context.AssignAdd(*count, context.graph().Constant(Tensor::Scalar<int64_t>(1)));
             })
              .ok());
  CHECK(Read(sum) == 13);
  CHECK(Read(mean) == 3);
  CHECK(Read(first) == 8);
  CHECK(count->Read().value().scalar<int64_t>() == 6);
}

TEST_CASE("An assignment in a replica needs an aggregation, but not in a merge_call or across replicas") {
  Job job;
  DistributedVariable* const none = job.Make("none", Tensor::Scalar(10.0f), VariableAggregation::kNone);
  for (const bool add : {false, true}) {
    const absl::Status status = job.Do([&](ReplicaContext& context) {
      const Value one = Replicas::Constant(context, 1);
      add ? context.AssignAdd(*none, one) : context.Assign(*none, one);
    });
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains("You must specify an aggregation method to update a "
                                                       "AggregatingVariable in Replica Context: variable none has "
                                                       "none"));
  }
  CHECK(Read(none) == 10);
  REQUIRE(job.Do([&](ReplicaContext& context) {
               context.MergeCall(
                   [&](CrossReplicaContext& cross, absl::Span<const PerReplicaValue> values) {
                     const Value sum = cross.Reduce(ReduceOp::kSum, values[0]);
                     cross.Update(*none, [&](Value copy) { return compute::Add(copy, sum); });
                     return Values{};
                   },
                   {Replicas::TimesId(context, 1)});
             })
              .ok());
  CHECK(Read(none) == 13);
  REQUIRE(none->AssignAdd(Tensor::Scalar(2.0f)).ok());
  CHECK(Read(none) == 15);
  // Mirrored replicas have copies, of which each changes its own.
  Job mirrored("mirrored");
  DistributedVariable* const copies = mirrored.Make("none", Tensor::Scalar(10.0f), VariableAggregation::kNone);
  CHECK(mirrored.Do([&](ReplicaContext& context) { context.Assign(*copies, Replicas::Constant(context, 1)); }).ok());
}

TEST_CASE("Across replicas a variable that sums is written as it is, since there is one copy") {
  Job job;
  DistributedVariable* const count =
      job.Make("count", Tensor::Scalar<int64_t>(6), VariableAggregation::kSum, VariableSynchronization::kOnRead);
  CHECK_FALSE(count->is_on_read());
  CHECK_FALSE(count->spec().trainable);
  const auto read = [&] { return count->Read().value().scalar<int64_t>(); };
  CHECK(read() == 6);
  REQUIRE(count->Assign(Tensor::Scalar<int64_t>(7)).ok());
  CHECK(read() == 7);
  REQUIRE(count->AssignAdd(Tensor::Scalar<int64_t>(1)).ok());
  CHECK(read() == 8);
  REQUIRE(job.Do([&](ReplicaContext& context) {
               context.AssignAdd(*count, context.graph().Constant(Tensor::Scalar<int64_t>(2)));
             })
              .ok());
  CHECK(read() == 14);
}

TEST_CASE("A mean is that of all replicas") {
  Job job;
  MeanMetric mean = MeanMetric::Create(*job.scope, "mean").value();
  for (int step = 0; step < 2; ++step) {
    REQUIRE(job.Do([&](ReplicaContext& context) { mean.UpdateState(context, Replicas::TimesId(context, 6)); }).ok());
  }
  CHECK(mean.Result().value() == 6);
  REQUIRE(mean.ResetState().ok());
  CHECK(mean.Result().value() == 0);
}

TEST_CASE("What a replica assigns is read back, and values that are handed over are those of before the updates") {
  Job job;
  const auto make = [&](const char* name, float value) {
    return job.Make(name, Tensor::Scalar(value), VariableAggregation::kOnlyFirstReplica);
  };
  DistributedVariable *const a = make("a", 1), *const b = make("b", 2);
  ReplicaFunction swap([&](ReplicaContext& context, absl::Span<const Value>) {
    const Value old = context.Read(*a);
    context.Assign(*a, context.Read(*b));
    context.Assign(*b, old);
    return Values{context.Read(*a), context.Read(*b)};
  });
  const auto results = job.scope->Run(swap, {}).value();
  CHECK(Components(results[0]) == std::vector<Floats>(3, {2}));
  CHECK(Components(results[1]) == std::vector<Floats>(3, {1}));
  CHECK(Read(a) == 2);
  CHECK(Read(b) == 1);
  // Nothing is computed in between: what is handed over are the variables themselves.
  REQUIRE(job.Do([&](ReplicaContext& context) {
               context.MergeCall(
                   [&](CrossReplicaContext& cross, absl::Span<const PerReplicaValue>) {
                     const Value old_a = cross.Read(*a), old_b = cross.Read(*b);
                     cross.Update(*a, [&](Value) { return old_b; });
                     cross.Update(*b, [&](Value) { return old_a; });
                     return Values{};
                   },
                   {});
             })
              .ok());
  CHECK(Read(a) == 1);
  CHECK(Read(b) == 2);
}

TEST_CASE("Gradients that the caller has summed are not for one copy") {
  Job job;
  const absl::Status status = job.Do([](ReplicaContext& context) {
    const Value v = context.graph().Variable({"v", {DType::kFloat32, {}}, compute::Initializer::Zeros()});
    context.ApplyGradients(compute::GradientDescent, Replicas::Constant(context, 1),
                           std::vector<compute::VariableGradient>{{v, Replicas::Constant(context, 1)}},
                           /*experimental_aggregate_gradients=*/false);
  });
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()),
             Contains("not supported for ParameterServerStrategy and CentralStorageStrategy"));
}

TEST_CASE("A function without updates only computes, and one device has its own variables") {
  Job job;
  ReplicaFunction identity([](ReplicaContext&, absl::Span<const Value> inputs) { return Values{inputs[0]}; });
  for (int run = 0; run < 2; ++run) {
    CHECK(Components(job.scope->Run(identity, {Vector({1, 2})}).value()[0]) == std::vector<Floats>(3, {1, 2}));
  }
  const auto strategy = Strategy::Create({.name = "central_storage"}).value();
  const auto scope = StrategyScope::Create(*strategy, /*seed=*/1).value();
  DistributedVariable* const variable =
      scope->CreateVariable({.name = "v", .initial_value = Tensor::Scalar(1.0f)}).value();
  ReplicaFunction add([&](ReplicaContext& context, absl::Span<const Value>) {
    context.AssignAdd(*variable, Replicas::Constant(context, 1));
    return Values{};
  });
  REQUIRE(scope->Run(add, {}).ok());
  CHECK(Read(variable) == 2);
}

}  // namespace
}  // namespace official::distribute
