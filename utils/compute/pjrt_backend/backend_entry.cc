// What libofficial_pjrt.so exports.
#include "utils/compute/pjrt_backend/backend_entry.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda_backend/build_info.h"
#include "utils/compute/pjrt/hlo_program.h"
#include "utils/compute/pjrt/pjrt_device.h"

namespace official::compute {
namespace {

absl::StatusOr<PjrtBackend> Open(const PjrtPluginOptions& options, KernelRegistry& kernels) {
  const int wanted = options.num_cpu_devices;
  ASSIGN_OR_RETURN(
      const std::shared_ptr<PjrtClient> client,
      OpenPjrtClient(
          {.plugin = options.path, .client = {.num_cpu_devices = wanted > 1 ? wanted : 0}, .waits = options.waits}));
  auto num_devices = static_cast<int>(client->devices().size());
  if (client->platform() == "cpu") num_devices = std::min(num_devices, wanted);
  if (num_devices < wanted || (client->platform() != "cpu" && wanted > 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the PJRT plugin ", options.path, " has ", num_devices, " ",
                                                   client->platform(), num_devices == 1 ? " device" : " devices",
                                                   ", whose number cannot be chosen; leave out --num_cpu_devices"));
  }
  PjrtBackend backend = {
      .device_kind = PjrtDeviceKind(client), .num_devices = num_devices, .merged_op = *FindOp(op::HloModule.text())};
  for (const KernelDef* kernel : KernelRegistry::Global().All()) kernels.Add(*kernel);
  return backend;
}

}  // namespace
}  // namespace official::compute

extern "C" __attribute__((visibility("default"))) const char* OfficialPjrtBackendSources() {
  return official::compute::kBackendSources;
}

extern "C" __attribute__((visibility("default"))) void OfficialOpenPjrtBackend(
    const official::compute::PjrtPluginOptions& options, official::compute::KernelRegistry& kernels,
    absl::StatusOr<official::compute::PjrtBackend>& backend) {
  backend = official::compute::Open(options, kernels);
}
