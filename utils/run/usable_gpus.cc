#include "utils/run/usable_gpus.h"

#include <string>

#include "absl/status/status.h"
#include "utils/compute/cuda_backend/cuda_backend.h"
#include "utils/compute/kernel/device.h"
#include "utils/logs/log.h"

namespace official::run {

misc::VisibleGpus UsableGpus() {
  misc::VisibleGpus gpus = misc::CountVisibleGpus();
  if (gpus.count == 0) return gpus;
  const absl::Status status = compute::LoadCudaBackend();
  if (status.ok()) return gpus;
  LOG(WARNING) << gpus.count << " GPUs are there but cannot be used: " << status.message();
  return {.count = 0, .why_none = std::string(status.message())};
}

absl::string_view DeviceKindFor(int num_gpus) { return num_gpus > 0 ? compute::kCudaKind : "cpu"; }

}  // namespace official::run
