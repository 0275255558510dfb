#include "utils/distribute/custom_loop/mean_metric.h"

#include <catch2/catch.hpp>

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

}  // namespace
}  // namespace official::distribute
