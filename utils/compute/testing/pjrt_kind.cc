// Makes devices of kind "pjrt" out of a plugin: that of OP_TEST_PJRT_PLUGIN in the environment, "xla_cpu" or
// "other_xla_cpu" in the test's runfiles or the path of any, else the first. With OP_TEST_PJRT_AS_TPU=1 programs are
// written for it as for a TPU, but for products, which XLA for CPUs cannot compute in narrow types.

#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/pjrt/hlo_program.h"
#include "utils/compute/pjrt/pjrt_device.h"

namespace official::compute {
namespace {

std::string PluginPath() {
  const char* const runfiles = std::getenv("TEST_SRCDIR");
  const char* const name = std::getenv("OP_TEST_PJRT_PLUGIN");
  if (name != nullptr && absl::string_view(name).find('/') != absl::string_view::npos) return name;
  return absl::StrCat(runfiles == nullptr ? ".." : runfiles, "/pjrt/", name == nullptr ? "xla_cpu" : name, ".so");
}

std::optional<HloOptions> Options() {
  if (std::getenv("OP_TEST_PJRT_AS_TPU") == nullptr) return std::nullopt;
  HloOptions options = HloOptionsFor("tpu");
  options.has_narrow_products = false;
  return options;
}

const bool registered = RegisterDeviceKind(PjrtDeviceKind({.plugin = PluginPath(), .hlo = Options()}));

}  // namespace
}  // namespace official::compute
