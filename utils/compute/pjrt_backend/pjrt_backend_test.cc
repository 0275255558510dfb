#include "utils/compute/pjrt_backend/pjrt_backend.h"

#include <catch2/catch.hpp>
#include <string>

#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/compute/pjrt/plugin_of_tests.h"

namespace official::compute {
namespace {

TEST_CASE("The shared object brings the devices of a plugin, and what it writes, to a program that links neither") {
  CHECK(FindDeviceKind(kPjrtKind) == nullptr);
  const auto has_add = [] { return KernelRegistry::Global().Find(op::Add, kPjrtKind, DType::kFloat32) != nullptr; };
  CHECK(!has_add());
  const PjrtPluginOptions options = {.path = PluginOfTests(), .num_cpu_devices = 3};
  const absl::StatusOr<int> num_devices = LoadPjrtBackend(options);
  INFO(num_devices.status());
  REQUIRE(num_devices.ok());
  CHECK(*num_devices == 3);
  CHECK(has_add());
  CHECK(MakeDevice(kPjrtKind, {.index = 2}).value()->name() == "cpu:2");
  CHECK_THAT(std::string(MakeDevice(kPjrtKind, {.index = 3}).status().message()),
             Catch::StartsWith("there is no cpu:3: "));
  CHECK(LoadPjrtBackend(options) == num_devices);
}

}  // namespace
}  // namespace official::compute
