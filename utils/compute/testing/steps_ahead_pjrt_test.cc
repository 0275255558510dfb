// The device of a plugin that takes all work and does none of it: what a program gives it before anything is done.

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/pjrt/pjrt_device.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/compute/program/program.h"

namespace official::compute {
namespace {

const bool registered = RegisterDeviceKind(
    PjrtDeviceKind({.plugin = "utils/compute/pjrt/libstuck_plugin.so",
                    .waits = {.deadline = std::chrono::seconds(1), .set_by = "--all_reduce_timeout_secs"}}));

TEST_CASE("A device is given the next steps with what they are fed before it has done the first") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {3}}), y = Exp(x);
  const std::unique_ptr<Device> device = MakeDevice(kPjrtKind).value();
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {{x}, {y}, {}}, *device, variables).value();
  const std::vector<Tensor> feeds = {Tensor::Of<float>({3}, {1, 2, 3})};
  // A wait for a step, or for the copy of a feed behind it, would end with the deadline's error.
  for (int step = 0; step < kMaxRunsBehind; ++step) REQUIRE(program->Run(feeds).ok());
  CHECK(absl::IsDeadlineExceeded(program->Run(feeds)));
}

}  // namespace
}  // namespace official::compute
