// Makes devices of kind "pjrt" out of a plugin: that of OP_TEST_PJRT_PLUGIN in the environment, "xla_cpu" or
// "other_xla_cpu" in the test's runfiles or the path of any, else the first. With OP_TEST_PJRT_AS_TPU=1 programs are
// written for it as for a TPU, but for products, which XLA for CPUs cannot compute in narrow types.
// OP_TEST_PJRT_DEVICES is the number of devices of a plugin for CPUs; without it the plugin decides.

#include <cstdlib>
#include <optional>

#include "utils/compute/kernel/device.h"
#include "utils/compute/pjrt/hlo_program.h"
#include "utils/compute/pjrt/pjrt_device.h"
#include "utils/compute/pjrt/plugin_of_tests.h"

namespace official::compute {
namespace {

std::optional<HloOptions> Options() {
  if (std::getenv("OP_TEST_PJRT_AS_TPU") == nullptr) return std::nullopt;
  HloOptions options = HloOptionsFor("tpu");
  options.has_narrow_products = false;
  return options;
}

PjrtClientOptions ClientOptions() {
  const char* const num_devices = std::getenv("OP_TEST_PJRT_DEVICES");
  return {.num_cpu_devices = num_devices == nullptr ? 0 : std::atoi(num_devices)};
}

const bool registered =
    RegisterDeviceKind(PjrtDeviceKind({.plugin = PluginOfTests(), .client = ClientOptions(), .hlo = Options()}));

}  // namespace
}  // namespace official::compute
