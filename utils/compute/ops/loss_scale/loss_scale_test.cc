#include "utils/compute/ops/loss_scale/loss_scale.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using Catch::Matchers::Contains;

// A test case calls it once and runs once for each kind of device.
std::string EachKind() { return GENERATE(from_range(testing::KindsUnderTest())); }

// A program that looks at three tensors of these sizes, on the way to counting a step.
struct Finite {
  explicit Finite(std::vector<int64_t> sizes, bool scaled = false) {
    std::vector<Value> inputs;
    for (const int64_t n : sizes) {
      const Value x = graph.Input("x" + std::to_string(inputs.size()), {DType::kFloat32, {n}});
      inputs.push_back(x);
      feeds.push_back(testing::RandomTensor({n}, inputs.size()));
    }
    GraphRoots roots{.feeds = inputs, .fetches = {}, .targets = {}};
    Value scale;
    if (scaled) {
      scale = graph.Input("scale", {DType::kFloat32, {}});
      roots.feeds.push_back(scale);
    }
    const Value step = graph.Variable({"step", {DType::kInt64, {}}, Initializer::Zeros()});
    roots.fetches = {AllFinite(inputs, {.loss_scale = scale})};
    roots.targets = {AssignAdd({{step, graph.Constant(Tensor::Scalar(int64_t{1}))}})};
    REQUIRE(variables.Create(graph, 1).ok());
    program = Program::Compile(graph, roots, *device, variables).value();
    testing::RecordKernels(*program, kind);
  }

  absl::Status Run(std::vector<Tensor> more = {}) {
    std::vector<Tensor> all = feeds;
    all.insert(all.end(), more.begin(), more.end());
    return testing::RunAndWait(*program, all, *device);
  }
  bool all_finite() const { return program->Fetch(0)->scalar<bool>(); }
  int64_t steps() const { return variables.Read("step")->scalar<int64_t>(); }

  std::string kind = EachKind();
  std::unique_ptr<Device> device = MakeDevice(kind).value();
  Graph graph;
  VariableStore variables{*device};
  std::vector<Tensor> feeds;
  std::unique_ptr<Program> program;
};

TEST_CASE("Devices that share variables do not check gradients without a barrier") {
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  const auto compile = [&](bool barrier, const UpdatePart& part) {
    Graph graph;
    const Value x = graph.Input("x", {DType::kFloat32, {4}});
    const GraphRoots roots{.feeds = {x}, .fetches = {AllFinite({x}, {.barrier = barrier})}, .targets = {}};
    VariableStore variables(*device, nullptr, part);
    return Program::Compile(graph, roots, *device, variables).status();
  };
  const absl::Status refused = compile(false, {.part = 0, .parts = 2});
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Contains("barrier"));
  CHECK(compile(true, {.part = 0, .parts = 2}).ok());
  CHECK(compile(false, {}).ok());
}

// Sizes around the ranges that threads and blocks take.
TEST_CASE("AllFinite finds any element that is not, wherever it is, before anything later runs") {
  Finite finite({1, 70001, 33});
  INFO(finite.kind);
  REQUIRE(finite.Run().ok());
  CHECK(finite.all_finite());
  CHECK(finite.steps() == 1);
  const float largest = std::numeric_limits<float>::max(), tiny = std::numeric_limits<float>::denorm_min();
  for (const auto& [tensor, element] : {std::pair{0, 0}, {1, 0}, {1, 32768}, {1, 70000}, {2, 0}, {2, 32}}) {
    float& x = finite.feeds[tensor].data<float>()[element];
    const float before = x;
    for (const float good : {largest, -largest, tiny, -0.0f}) {
      x = good;
      CHECK(finite.Run().ok());
    }
    const int64_t steps = finite.steps();
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
      CAPTURE(tensor, element, bad);
      x = bad;
      const absl::Status status = finite.Run();
      CHECK(absl::IsOutOfRange(status));
      CHECK_THAT(std::string(status.message()), Contains("input " + std::to_string(tensor)));
      CHECK(finite.steps() == steps);
    }
    x = before;
  }
}

TEST_CASE("A loss scale above 1 may be the reason: then the run continues") {
  Finite finite({2, 3}, /*scaled=*/true);
  INFO(finite.kind);
  CHECK(finite.Run({Tensor::Scalar(1.0f)}).ok());
  CHECK(finite.all_finite());
  finite.feeds[1].data<float>()[2] = INFINITY;
  CHECK(finite.Run({Tensor::Scalar(2.0f)}).ok());
  CHECK_FALSE(finite.all_finite());
  CHECK(finite.steps() == 2);
  for (const float no_reason : {1.0f, NAN}) {
    CHECK(absl::IsOutOfRange(finite.Run({Tensor::Scalar(no_reason)})));
    CHECK(finite.steps() == 2);
  }
}

TEST_CASE("AllFinite does not make a sparse gradient dense") {
  Graph graph;
  const Value table = graph.Variable({"table", {DType::kFloat32, {5, 3}}, Initializer::Ones()});
  const Value ids = graph.Input("ids", {DType::kInt32, {2}});
  const Value gradient = Gradients(Gather(table, ids), {table})[0];
  REQUIRE(AllFinite({gradient}));
  CHECK(AllFinite({gradient}).node()->input(0).shape() == Shape({2, 3}));
}

// By tf.compat.v1.train.experimental.DynamicLossScale.
TEST_CASE("A dynamic loss scale halves at once and doubles after enough good steps") {
  const std::string kind = EachKind();
  INFO(kind);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  Graph graph;
  const Value scale = graph.Variable({"scale", {DType::kFloat32, {}}, Initializer::Constant(4)});
  const Value good_steps = graph.Variable({"good_steps", {DType::kInt64, {}}, Initializer::Zeros()});
  const Value finite = graph.Input("finite", {DType::kBool, {}});
  Node* const update = UpdateLossScale(scale, good_steps, finite, /*growth_steps=*/3);
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{finite}, {}, {update}}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  const auto after = [&](bool all_finite) {
    REQUIRE(program->Run({Tensor::Scalar(all_finite)}).ok());
    return variables.Read("scale")->scalar<float>();
  };
  CHECK(after(true) == 4);
  CHECK(after(true) == 4);
  CHECK(after(true) == 8);
  CHECK(after(true) == 8);
  CHECK(after(true) == 8);
  CHECK(after(false) == 4);  // and counting starts again
  CHECK(variables.Read("good_steps")->scalar<int64_t>() == 0);
  CHECK(after(true) == 4);
  CHECK(after(true) == 4);
  CHECK(after(true) == 8);
  CHECK(after(false) == 4);
  CHECK(after(false) == 2);
  CHECK(after(false) == 1);
  CHECK(after(false) == 1);
  REQUIRE(variables.Write("scale", Tensor::Scalar(0x1p127f)).ok());
  for (int i = 0; i < 3; ++i) CHECK(after(true) == 0x1p127f);
}

TEST_CASE("What does not fit is refused") {
  const auto refusal = [](const std::vector<TensorType>& types, auto build) {
    return std::string(testing::BuildStatus(types, build).message());
  };
  CHECK_THAT(refusal({{DType::kInt32, {2}}},
                     [](absl::Span<const Value> in) { return std::vector<Value>{AllFinite({in[0]})}; }),
             Contains("AllFinite: needs float32 tensors"));
  CHECK_THAT(refusal({{DType::kFloat32, {2}}, {DType::kInt64, {}}, {DType::kBool, {}}},
                     [](absl::Span<const Value> in) {
                       UpdateLossScale(in[0], in[1], in[2]);
                       return std::vector<Value>{};
                     }),
             Contains("UpdateLossScale: needs a float32 and an int64 scalar"));
}

}  // namespace
}  // namespace official::compute
