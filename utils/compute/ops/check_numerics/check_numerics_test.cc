#include "utils/compute/ops/check_numerics/check_numerics.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using Catch::Matchers::Contains;
using testing::Doubles;

TEST_CASE("Finite values pass unchanged, and so do gradients") {
  const testing::OpCase test = {.op = "CheckNumerics",
                                .inputs = {testing::RandomTensor({3, 5}, 1)},
                                .build = [](absl::Span<const Value> in) { return std::vector{CheckNumerics(in[0])}; },
                                .reference = [](const std::vector<Doubles>& in) { return in; }};
  CheckForward(test);
  CheckGradients(test);
}

TEST_CASE("A value that is not finite ends the run before any update that was built later") {
  const auto device = MakeDevice("cpu").value();
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value y = CheckNumerics(Exp(x));
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {{x}, {y}, {}}, *device, variables).value();
  CHECK(program->Run({Tensor::Of<float>({2}, {0, 1})}).ok());
  const Tensor bad = Tensor::Of<float>({2}, {0, 1000});
  const absl::Status status = program->Run({bad});
  CHECK(absl::IsOutOfRange(status));
  CHECK_THAT(std::string(status.message()), Contains("element 1 of float32[2] is inf"));

  // Asked to look everywhere, the program names the op that made it, or the input that was bad already.
  const absl::Status first = program->Run({bad}, {.check_numerics = true});
  CHECK_THAT(std::string(first.message()), Contains("Exp") && Contains("element 1 is inf"));
  const Tensor worse = Tensor::Of<float>({2}, {NAN, 0});
  CHECK_THAT(std::string(program->Run({worse}, {.check_numerics = true}).message()), Contains("x (Input"));
}

}  // namespace
}  // namespace official::compute
