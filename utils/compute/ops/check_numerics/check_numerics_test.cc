#include "utils/compute/ops/check_numerics/check_numerics.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using Catch::Matchers::Contains;
using testing::Doubles;

TEST_CASE("Finite values pass unchanged, and so do gradients") {
  const testing::OpCase test = {.op = op::CheckNumerics,
                                .inputs = {testing::RandomTensor({3, 5}, 1)},
                                .build = [](absl::Span<const Value> in) { return std::vector{CheckNumerics(in[0])}; },
                                .reference = [](const std::vector<Doubles>& in) { return in; }};
  CheckForward(test);
  CheckGradients(test);
}

TEST_CASE("A value that is not finite ends the run before any update that was built later") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const auto device = MakeDevice(kind).value();
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value y = CheckNumerics(Exp(x));
  const Value step = graph.Variable({"step", {DType::kInt64, {}}, Initializer::Zeros()});
  Node* const count = AssignAdd({{step, graph.Constant(Tensor::Scalar(int64_t{1}))}});
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{x}, {y}, {count}}, *device, variables).value();
  const auto run = [&](const Tensor& value) { return testing::RunAndWait(*program, {value}, *device); };
  const auto steps = [&] { return variables.Read("step")->scalar<int64_t>(); };
  CHECK(run(Tensor::Of<float>({2}, {0, 1})).ok());
  CHECK(steps() == 1);
  const Tensor bad = Tensor::Of<float>({2}, {0, 1000});
  const absl::Status status = run(bad);
  CHECK(absl::IsOutOfRange(status));
  CHECK_THAT(std::string(status.message()), Contains("element 1 of float32[2] is inf"));
  CHECK(steps() == 1);
  CHECK_THAT(std::string(run(Tensor::Of<float>({2}, {NAN, 1000})).message()),
             Contains("element 0 of float32[2] is nan"));

  // Asked to look everywhere, the program names the op that made it, or the input that was bad already.
  const absl::Status first = program->Run({bad}, {.check_numerics = true});
  // Of a graph whose nodes a device has merged it sees the results.
  if (FindDeviceKind(device->kind())->merge) {
    CHECK_THAT(std::string(first.message()), Contains("element 1 of float32[2] is inf"));
  } else {
    CHECK_THAT(std::string(first.message()), Contains("Exp") && Contains("element 1 is inf"));
  }
  const Tensor worse = Tensor::Of<float>({2}, {NAN, 0});
  CHECK_THAT(std::string(program->Run({worse}, {.check_numerics = true}).message()), Contains("x (Input"));
}

}  // namespace
}  // namespace official::compute
