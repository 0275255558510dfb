// The times of a program's kernels, on emulated devices.

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/program/program.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

TEST_CASE("Each kernel has a time of its own, and the results are those of a run without times") {
  Graph graph;
  const Value a = graph.Input("a", {DType::kFloat32, {40, 24}}), b = graph.Input("b", {DType::kFloat32, {24, 16}});
  const Value y = Softmax(MatMul(Relu(a), b));
  const std::vector<Tensor> feeds = {testing::RandomTensor({40, 24}, 1), testing::RandomTensor({24, 16}, 2)};
  const std::unique_ptr<Device> device = MakeDevice(kCudaKind).value();
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {{a, b}, {y}, {}}, *device, variables).value();
  REQUIRE(program->Run(feeds).ok());
  const testing::Doubles expected = testing::ToDoubles(program->Fetch(0).value());

  std::vector<KernelTiming> timings;
  REQUIRE(program->Run(feeds, {.timings = &timings}).ok());
  REQUIRE(timings.size() == 3);
  CHECK(timings[0].op == op::Relu.text());
  CHECK(timings[1].op == op::MatMul.text());
  CHECK(timings[2].op == op::Softmax.text());
  for (size_t i = 0; i < timings.size(); ++i) {
    CHECK(timings[i].duration_ns >= 0);
    if (i > 0) CHECK(timings[i].start_ns == timings[i - 1].start_ns + timings[i - 1].duration_ns);
  }
  CHECK(testing::ToDoubles(program->Fetch(0).value()) == expected);
}

}  // namespace
}  // namespace official::compute
