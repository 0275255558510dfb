#include "utils/run/usable_gpus.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/cuda_backend/cuda_backend.h"
#include "utils/compute/kernel/device.h"
#include "utils/logs/log.h"

namespace official::run {

misc::VisibleGpus UsableGpus() {
  misc::VisibleGpus gpus = misc::CountVisibleGpus();
  if (gpus.count == 0) return gpus;
  const absl::Status status = compute::LoadCudaBackend();
  if (status.ok()) {
    const compute::CudaGpus& found = compute::FoundCudaGpus();
    if (found.usable.empty()) return gpus;  // devices of this kind are linked, as in tests: none was looked for
    for (const std::string& unusable : found.unusable) LOG(WARNING) << unusable;
    gpus.count = static_cast<int>(found.usable.size());
    return gpus;
  }
  LOG(WARNING) << gpus.count << " GPUs are there but cannot be used: " << status.message();
  return {.count = 0, .why_none = std::string(status.message())};
}

std::string WithLibraries(absl::string_view device_kind) {
  const compute::DeviceKind* const kind = compute::FindDeviceKind(device_kind);
  if (kind == nullptr || kind->library_versions == nullptr) return "";
  return absl::StrCat(" with ", kind->library_versions());
}

absl::string_view DeviceKindFor(int num_gpus) { return num_gpus > 0 ? compute::kCudaKind : "cpu"; }

}  // namespace official::run
