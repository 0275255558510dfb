// Programs on a PJRT plugin's devices, where a graph is one module: what makes that visible.

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/program/program.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::ToDoubles;

// A graph of one variable, of ones.
struct WithVariable {
  Graph graph;
  Value variable = graph.Variable({"v", {DType::kFloat32, {2, 3}}, Initializer::Ones()});
  Value rate = graph.Input("rate", {DType::kFloat32, {}});

  Node* Descend(Value gradient) { return GradientDescent(rate, {{variable, gradient}})[0]; }
};

// The value of the variable after the program's runs.
Doubles Read(const VariableStore& variables) { return ToDoubles(variables.Read("v").value()); }

TEST_CASE("What reads a variable behind an update reads the new value") {
  const std::string kind = GENERATE(as<std::string>{}, "cpu", kPjrtKind);
  WithVariable with;
  const Value view = Reshape(with.variable, {3, 2}), before = Mul(view, view);
  Node* const update = with.Descend(with.variable);
  const Value after = Mul(view, view);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(with.graph, 1).ok());
  const auto program =
      Program::Compile(with.graph, {{with.rate}, {before, after, with.variable}, {update}}, *device, variables);
  INFO(program.status());
  REQUIRE(program.ok());
  REQUIRE((*program)->Run({Tensor::Scalar(0.5f)}).ok());
  REQUIRE((*program)->Run({Tensor::Scalar(0.5f)}).ok());
  CHECK(ToDoubles((*program)->Fetch(0).value()) == Doubles(6, 0.25));
  CHECK(ToDoubles((*program)->Fetch(1).value()) == Doubles(6, 0.0625));
  CHECK(ToDoubles((*program)->Fetch(2).value()) == Doubles(6, 0.25));
  CHECK(Read(variables) == Doubles(6, 0.25));
}

TEST_CASE("A variable can be written and read between runs") {
  WithVariable with;
  const std::unique_ptr<Device> device = MakeDevice(kPjrtKind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(with.graph, 1).ok());
  const Tensor first = testing::RandomTensor({2, 3}, 1), second = testing::RandomTensor({2, 3}, 2);
  REQUIRE(variables.Write("v", first).ok());
  CHECK(Read(variables) == ToDoubles(first));
  const auto program =
      Program::Compile(with.graph, {{with.rate}, {with.variable}, {with.Descend(with.variable)}}, *device, variables)
          .value();
  REQUIRE(program->Run({Tensor::Scalar(1.0f)}).ok());
  CHECK(Read(variables) == Doubles(6, 0));
  REQUIRE(variables.Write("v", second).ok());
  REQUIRE(program->Run({Tensor::Scalar(0.0f)}).ok());
  CHECK(Read(variables) == ToDoubles(second));
}

TEST_CASE("An error of the data fails the run and leaves the variables behind it as they were") {
  WithVariable with;
  const Value labels = with.graph.Input("labels", {DType::kInt32, {2}});
  Node* const early = with.Descend(with.variable);
  const Value losses = SparseSoftmaxCrossEntropy(with.variable, labels);
  Node* const late = with.Descend(BroadcastTo(Sum(losses), {2, 3}));
  const std::unique_ptr<Device> device = MakeDevice(kPjrtKind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(with.graph, 1).ok());
  const auto program =
      Program::Compile(with.graph, {{with.rate, labels}, {losses}, {early, late}}, *device, variables).value();
  const Tensor rate = Tensor::Scalar(0.5f), good = Tensor::Of<int32_t>({2}, {2, 0});

  const absl::Status status = testing::RunAndWait(*program, {rate, Tensor::Of<int32_t>({2}, {2, 7})}, *device);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "SparseSoftmaxCrossEntropy: label 7 of example 1 is outside [0, 3)");
  CHECK(Read(variables) == Doubles(6, 0.5));

  // The error of a run that nobody waits for comes with a later one, which does not begin; those between change
  // nothing.
  REQUIRE(program->Run({rate, Tensor::Of<int32_t>({2}, {-1, 0})}).ok());
  for (int run = 1; run < kMaxRunsBehind; ++run) REQUIRE(program->Run({rate, good}).ok());
  CHECK(program->Run({rate, good}).message() == "SparseSoftmaxCrossEntropy: label -1 of example 0 is outside [0, 3)");
  CHECK(Read(variables) == Doubles(6, 0.25));

  REQUIRE(testing::RunAndWait(*program, {rate, good}, *device).ok());
  CHECK(Read(variables)[0] < 0);
}

constexpr OpName kUnwritten("UnwrittenOp");
const bool registered = RegisterOp({.name = kUnwritten, .infer = SameTypeAsInput});

TEST_CASE("An op that is not written in StableHLO is named when the graph is compiled") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {3}}), y = Apply(kUnwritten, {x});
  const std::unique_ptr<Device> device = MakeDevice(kPjrtKind).value();
  VariableStore variables(*device);
  const absl::Status status = Program::Compile(graph, {{x}, {y}, {}}, *device, variables).status();
  CHECK(absl::IsUnimplemented(status));
  CHECK(status.message() == "op UnwrittenOp is not written in StableHLO for float32, which pjrt devices need");
}

TEST_CASE("A device that the plugin does not have is refused") {
  const absl::Status status = MakeDevice(kPjrtKind, {.index = 9}).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Catch::StartsWith("there is no cpu:9: the PJRT plugin "));
  CHECK_THAT(std::string(status.message()), Catch::EndsWith(" devices"));
}

}  // namespace
}  // namespace official::compute
