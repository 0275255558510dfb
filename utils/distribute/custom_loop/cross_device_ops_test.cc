// Sums that the program writes itself. Expected values marked [ran] are what TensorFlow 2.21 printed.

#include "utils/distribute/cross_device_ops.h"

#include <algorithm>
#include <catch2/catch.hpp>
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
using compute::Tensor;
using compute::Value;

// Takes the largest value for the sum, and the half of it for the mean. It counts what it is asked.
class LargestOps : public CrossDeviceOps {
 public:
  absl::StatusOr<Tensor> Reduce(ReduceOp op, absl::Span<const Tensor> values) override {
    ++reduced;
    if (!error.ok()) return error;
    const Tensor largest = values[0].CastTo(compute::DType::kFloat64);
    for (const Tensor& value : values) {
      const Tensor other = value.CastTo(compute::DType::kFloat64);
      for (int64_t i = 0; i < largest.num_elements(); ++i) {
        largest.data<double>()[i] = std::max(largest.data<double>()[i], other.data<double>()[i]);
      }
    }
    if (op == ReduceOp::kMean) {
      for (double& x : largest.flat<double>()) x /= 2;
    }
    return result_type ? Tensor(*result_type) : largest.CastTo(values[0].dtype());
  }
  absl::StatusOr<std::vector<Tensor>> BatchReduce(ReduceOp op, absl::Span<const std::vector<Tensor>> values) override {
    batches.push_back(values.size());
    return CrossDeviceOps::BatchReduce(op, values);
  }

  int reduced = 0;
  std::vector<size_t> batches;
  absl::Status error;
  std::optional<compute::TensorType> result_type;
};

struct WithOps {
  explicit WithOps(std::shared_ptr<CrossDeviceOps> ops, int num_replicas = 2)
      : strategy(Strategy::Create({.num_replicas = num_replicas, .num_threads = 1, .cross_device_ops = std::move(ops)})
                     .value()),
        scope(StrategyScope::Create(*strategy, /*seed=*/1).value()) {}
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<StrategyScope> scope;
};

// Gradient descent, with rate 1, of two variables whose gradients are the inputs.
ReplicaFunction TwoGradients() {
  return ReplicaFunction([](ReplicaContext& context, absl::Span<const Value> inputs) {
    std::vector<compute::VariableGradient> updates;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Value w = context.graph().Variable({i == 0 ? "a" : "b", inputs[i].type(), compute::Initializer::Zeros()});
      updates.push_back({w, compute::Mul(inputs[i], context.graph().Constant(Tensor::Scalar(1.0f)))});
    }
    context.ApplyGradients(compute::GradientDescent, context.graph().Constant(Tensor::Scalar(1.0f)), updates);
    return Values{};
  });
}

TEST_CASE("Gradients are reduced by one's own operations, all of a step in one batch") {
  const auto ops = std::make_shared<LargestOps>();
  WithOps own(ops, 3);
  ReplicaFunction step = TwoGradients();
  const PerReplica a = {{Vector({1, 5}), Vector({3, 1}), Vector({2, 2})}};
  const PerReplica b = {{Tensor::Scalar(-1.0f), Tensor::Scalar(-2.0f), Tensor::Scalar(-3.0f)}};
  REQUIRE(own.scope->Run(step, {a, b}).ok());
  CHECK(ops->batches == std::vector<size_t>{2});  // [ran]
  CHECK(Components(own.scope->Variable("a").value()->LocalCopies().value()) ==
        std::vector<Floats>{{-3, -5}, {-3, -5}, {-3, -5}});
  CHECK(Components(own.scope->Variable("b").value()->LocalCopies().value()) == std::vector<Floats>{{1}, {1}, {1}});
}

TEST_CASE("Reduce asks one's own operations, along an axis for what each replica's has summed to") {
  const auto ops = std::make_shared<LargestOps>();
  WithOps own(ops);
  const PerReplica x = {{Vector({1, 5}), Vector({3, 1})}};
  CHECK(Elements(own.scope->Reduce(ReduceOp::kSum, x).value()) == Floats{3, 5});
  CHECK(Elements(own.scope->Reduce(ReduceOp::kMean, x).value()) == Floats{1.5, 2.5});
  CHECK(own.scope->Reduce(ReduceOp::kSum, x, 0).value().scalar<float>() == 6);
  CHECK(own.scope->Reduce(ReduceOp::kMean, x, -1).value().scalar<float>() == 1.5f);
  const PerReplica counts = {{Tensor::Scalar<int64_t>(3), Tensor::Scalar<int64_t>(5)}};
  CHECK(own.scope->Reduce(ReduceOp::kSum, counts).value().scalar<int64_t>() == 5);
  CHECK(own.scope->Reduce(ReduceOp::kMean, counts).value().scalar<double>() == 2.5);
  CHECK(ops->reduced == 6);
  CHECK_FALSE(own.scope->Reduce(ReduceOp::kSum, PerReplica{{Vector({1}), Vector({1, 2})}}).ok());
  CHECK(ops->reduced == 6);
  // One replica has nothing to reduce.
  WithOps one(ops, 1);
  CHECK(Elements(one.scope->Reduce(ReduceOp::kMean, PerReplica{{Vector({4})}}).value()) == Floats{4});
  CHECK(ops->reduced == 6);
}

TEST_CASE("Each replica gets what Broadcast gives it") {
  class Ranked : public LargestOps {
    absl::StatusOr<std::vector<Tensor>> Broadcast(const Tensor& value, int num_replicas) override {
      std::vector<Tensor> copies;
      for (int r = 0; r < num_replicas; ++r) {
        copies.push_back(value.Clone());
        for (float& x : copies.back().flat<float>()) x += static_cast<float>(10 * r);
      }
      return copies;
    }
  };
  WithOps own(std::make_shared<Ranked>());
  ReplicaFunction sum([](ReplicaContext& context, absl::Span<const Value> inputs) {
    return Values{context.AllReduce(ReduceOp::kSum, inputs[0])};
  });
  const auto results = own.scope->Run(sum, {PerReplica{{Vector({1, 5}), Vector({3, 1})}}}).value();
  CHECK(Components(results[0]) == std::vector<Floats>{{3, 5}, {13, 15}});
}

TEST_CASE("An operation that returns all it is given back keeps the values apart") {
  // The result is one of the values, in whose place the sum comes.
  class First : public CrossDeviceOps {
    absl::StatusOr<Tensor> Reduce(ReduceOp, absl::Span<const Tensor> values) override { return values[0]; }
  };
  WithOps own(std::make_shared<First>());
  ReplicaFunction sum([](ReplicaContext& context, absl::Span<const Value> inputs) {
    return Values{context.AllReduce(ReduceOp::kSum, inputs[0])};
  });
  const PerReplica x = {{Vector({1, 5}), Vector({3, 1})}};
  CHECK(Components(own.scope->Run(sum, {x}).value()[0]) == std::vector<Floats>{{1, 5}, {1, 5}});
  CHECK(Components(x) == std::vector<Floats>{{1, 5}, {3, 1}});
}

TEST_CASE("Errors of one's own operations end the step, and the next one runs") {
  const auto ops = std::make_shared<LargestOps>();
  WithOps own(ops);
  ReplicaFunction step = TwoGradients();
  const PerReplica gradients = {{Vector({1}), Vector({2})}};
  ops->error = absl::InternalError("no connection");
  CHECK_THAT(std::string(own.scope->Run(step, {gradients}).status().message()), Contains("no connection"));
  CHECK(own.scope->Reduce(ReduceOp::kSum, gradients).status() == absl::InternalError("no connection"));
  ops->error = absl::OkStatus();
  ops->result_type = compute::TensorType{compute::DType::kFloat32, {3}};
  const std::string wrong = "cross_device_ops have returned float32[3] for values of type float32[1]";
  CHECK_THAT(std::string(own.scope->Run(step, {gradients}).status().message()), Contains(wrong));
  CHECK_THAT(std::string(own.scope->Reduce(ReduceOp::kSum, gradients).status().message()), Contains(wrong));
  ops->result_type.reset();
  REQUIRE(own.scope->Run(step, {gradients}).ok());
  CHECK(Elements(own.scope->Variable("a").value()->Read().value()) == Floats{-2});
}

TEST_CASE("Where there cannot be operations of one's own") {
  const auto message = [](StrategyOptions options) {
    return std::string(Strategy::Create(options).status().message());
  };
  const auto ops = std::make_shared<LargestOps>();
  CHECK_THAT(message({.num_replicas = 2, .all_reduce_alg = "hierarchical_copy", .cross_device_ops = ops}),
             Contains("leave out them or all_reduce_alg=hierarchical_copy"));
  const auto exchanges = MakeMemoryExchanges(2);
  StrategyOptions workers = {.num_replicas = 2, .cross_device_ops = ops};
  workers.workers = {exchanges[0].get(), {{0, 1}, {1, 2}}};
  CHECK_THAT(message(workers), Contains("this job has other tasks"));
  if (Kind() != "cpu") {
    CHECK_THAT(message({.device_kind = Kind(), .num_replicas = 2, .cross_device_ops = ops}),
               Contains("this run trains on cuda devices"));
  }
  CHECK(message({.num_replicas = 2, .num_packs = -1}) ==
        "NCCL all-reduce requires num_packs >= 0, but -1 is specified");  // [ran]
  CHECK(message({.num_replicas = 2, .all_reduce_alg = "hierarchical_copy", .num_packs = -1}) ==
        "HierarchicalCopy requires num_packs >= 0, but -1 is specified");  // [ran]
}

}  // namespace
}  // namespace official::distribute
