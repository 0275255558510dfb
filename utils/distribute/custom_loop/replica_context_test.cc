// The rules of tf.distribute for custom training loops. Expected values marked [ran] are what TensorFlow 2.21 printed.

#include "utils/distribute/custom_loop/replica_context.h"

#include <catch2/catch.hpp>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/custom_loop/test_replicas.h"
#include "utils/logs/captured_log.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Shape;
using compute::Tensor;
using compute::Value;

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

// One step of gradient descent, with rate inputs[1], on the mean over the global batch of (x w)^2 / 2, which has the
// gradient w mean(x^2).
ReplicaFunction LeastSquares(std::optional<int64_t> global_batch_size = 8) {
  return ReplicaFunction([global_batch_size](ReplicaContext& context, absl::Span<const Value> inputs) {
    const Value w = context.graph().Variable({"w", {DType::kFloat32, {1, 1}}, compute::Initializer::Ones()});
    const Value half = context.graph().Constant(Tensor::Scalar(0.5f));
    const Value loss = ComputeAverageLoss(compute::Mul(half, compute::Square(compute::MatMul(inputs[0], w))),
                                          {.global_batch_size = global_batch_size});
    const Values trainable = context.TrainableVariables();
    const Values gradients = compute::Gradients(loss, trainable);
    context.ApplyGradients(compute::GradientDescent, inputs[1],
                           std::vector<compute::VariableGradient>{{w, gradients[0]}});
    return Values{loss};
  });
}

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

// Expected: by hand.
TEST_CASE("A global batch of size 0 has gradients of zeros") {
  Replicas replicas(3);
  const PerReplica x = {{Column({1, 2}), Column({3, 4}), Column({})}};
  const auto w_after = [&](std::optional<int64_t> global_batch_size) {
    ReplicaFunction step = LeastSquares(global_batch_size);
    const auto losses = replicas.scope->Run(step, {x, Tensor::Scalar(0.01f)}).value();
    CHECK(losses[0].values[2].scalar<float>() == 0);
    return replicas.scope->Variable("w").value()->Read().value().scalar<float>();
  };
  CHECK(w_after(0) == 1);
  // The empty batch has the size 0, those of the others 3 * 2.
  CHECK(w_after({}) == Approx(1 - 0.01 * 30 / 6));
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
  std::string log;
  {
    logs::CapturedLog captured(logs::LogFormat::kSimple);
    REQUIRE(run(true).ok());
    log = captured.Text();
  }
  CHECK_THAT(log, Contains("Gradients do not exist for variables ['unused'] when minimizing the loss."));
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

TEST_CASE("Averages of variables take in what an update before them has written") {
  const int num_replicas = GENERATE(1, 2);
  Replicas replicas(num_replicas);
  ReplicaFunction step([](ReplicaContext& context, absl::Span<const Value> inputs) {
    const Value w = context.graph().Variable({"w", {DType::kFloat32, {1}}, compute::Initializer::Constant(5)});
    const Value average = context.graph().Variable({"average", w.type(), compute::Initializer::Zeros(), false});
    context.ApplyGradients(compute::GradientDescent, context.graph().Constant(Tensor::Scalar(1.0f)),
                           std::vector<compute::VariableGradient>{{w, inputs[0]}});
    context.UpdateMovingAverages(std::vector<compute::MovingAverage>{{average, w}}, /*momentum=*/0);
    return Values{};
  });
  REQUIRE(replicas.scope->Run(step, {Vector({1})}).ok());
  const float updated = 5.0f - static_cast<float>(num_replicas);
  CHECK(Elements(replicas.scope->Variable("w").value()->Read().value()) == Floats{updated});
  CHECK(Components(replicas.scope->Variable("average").value()->LocalCopies().value()) ==
        std::vector<Floats>(num_replicas, {updated}));
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

}  // namespace
}  // namespace official::distribute
