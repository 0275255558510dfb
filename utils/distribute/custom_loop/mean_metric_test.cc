#include "utils/distribute/custom_loop/mean_metric.h"

#include <catch2/catch.hpp>

#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

using compute::Tensor;
using compute::Value;

Tensor Vector(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, absl::MakeConstSpan(values));
}

TEST_CASE("The mean is that of all values of all replicas, however many each has") {
  const auto strategy = Strategy::Create({.num_replicas = 3, .num_threads = 1}).value();
  const auto scope = StrategyScope::Create(*strategy, /*seed=*/1).value();
  MeanMetric metric = MeanMetric::Create(*scope, "loss").value();
  ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    metric.UpdateState(context, inputs[0]);
    return std::vector<Value>{};
  });
  CHECK(metric.Result().value() == 0);
  REQUIRE(scope->Run(step, {PerReplica{{Vector({1, 2, 3}), Vector({4}), Vector({})}}}).ok());
  CHECK(metric.Result().value() == 2.5f);
  REQUIRE(scope->Run(step, {PerReplica{{Vector({}), Vector({}), Vector({10})}}}).ok());
  CHECK(metric.Result().value() == 4);
  REQUIRE(metric.ResetState().ok());
  CHECK(metric.Result().value() == 0);
  CHECK_FALSE(MeanMetric::Create(*scope, "loss").ok());
}

TEST_CASE("Values count by their weights") {
  const auto strategy = Strategy::Create({.num_replicas = 2, .num_threads = 1}).value();
  const auto scope = StrategyScope::Create(*strategy, /*seed=*/1).value();
  MeanMetric metric = MeanMetric::Create(*scope, "loss").value();
  ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    metric.UpdateState(context, inputs[0], inputs[1]);
    return std::vector<Value>{};
  });
  // The example of tf.keras.metrics.Mean: values 1, 3, 5, 7 with weights 1, 1, 0, 0.
  REQUIRE(scope->Run(step, {PerReplica{{Vector({1, 3}), Vector({5, 7})}}, PerReplica{{Vector({1, 1}), Vector({0, 0})}}})
              .ok());
  CHECK(metric.Result().value() == 2);
  // A weight for all of a replica's values: (1 + 3 + 2 * (4 + 5)) / (2 + 4), with the two of before.
  REQUIRE(scope->Run(step, {PerReplica{{Vector({}), Vector({4, 5})}}, Tensor::Scalar(2.0f)}).ok());
  CHECK(metric.Result().value() == Approx(22.0 / 6));
}

// The mean of `values` with `weights` on one replica, or its error.
absl::StatusOr<float> MeanOf(const Tensor& values, const Tensor& weights) {
  const auto strategy = Strategy::Create({.num_replicas = 1, .num_threads = 1}).value();
  const auto scope = StrategyScope::Create(*strategy, /*seed=*/1).value();
  const MeanMetric metric = MeanMetric::Create(*scope, "loss").value();
  ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value> inputs) {
    metric.UpdateState(context, inputs[0], inputs[1]);
    return std::vector<Value>{};
  });
  RETURN_IF_ERROR(scope->Run(step, {values, weights}).status());
  return metric.Result();
}

TEST_CASE("The shapes of weights: as in tf.keras.metrics.Mean") {
  const Tensor matrix = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  CHECK(MeanOf(Vector({1, 2, 4}), Tensor::Of<float>({3, 1}, {2, 0, 1})).value() == 2);  // (2 + 4) / 3
  CHECK(MeanOf(matrix, Vector({1, 0})).value() == 1.5f);                                // (1 + 2) / 2
  // The means of the examples, 2.5 and 6.5, with their weights.
  const Tensor cubes = Tensor::Of<float>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(MeanOf(cubes, Vector({3, 1})).value() == 3.5f);
  CHECK(MeanOf(cubes, Tensor::Scalar(2.0f)).value() == 4.5f);
  CHECK(MeanOf(matrix, Vector({1, 2, 3})).status() ==
        absl::InvalidArgumentError(
            "sample_weight has the shape [3], which is not broadcast to that of the values, [2,2]"));
}

}  // namespace
}  // namespace official::distribute
