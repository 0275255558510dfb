// The kind "pjrt" where PJRT's header and plugins were not found: no device can be made.

#include "utils/compute/kernel/device.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

absl::StatusOr<std::unique_ptr<Device>> MakeNone(const DeviceOptions&) {
  return absl::FailedPreconditionError(
      "PJRT's header was not found when this was built: run it by tools/test, or run tools/python_env pjrt and bazel "
      "shutdown");
}

const bool registered = [] {
  AddHloEmittersToKernels();
  return RegisterDeviceKind({.name = kPjrtKind, .make_device = MakeNone});
}();

}  // namespace
}  // namespace official::compute
