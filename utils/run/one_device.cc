#include "utils/run/one_device.h"

#include "utils/compute/core/status.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/logs/log.h"
#include "utils/misc/distribution_utils.h"
#include "utils/run/pjrt_plugin.h"
#include "utils/run/usable_gpus.h"

namespace official::run {
namespace {

absl::StatusOr<std::string> KindOfDevice(const flags::PerformanceConfig& config, std::optional<int> num_gpus,
                                         const std::string& program) {
  if (config.distribution_strategy == "tpu") {
    RETURN_IF_ERROR(UsePjrtPlugin(config, program).status());
    return compute::kPjrtKind;
  }
  ASSIGN_OR_RETURN(const int count, misc::GetNumGpus(num_gpus, UsableGpus));
  return std::string(DeviceKindFor(count));
}

}  // namespace

absl::StatusOr<std::unique_ptr<compute::Device>> MakeOneDevice(const flags::PerformanceConfig& config,
                                                               std::optional<int> num_gpus,
                                                               const std::string& program) {
  ASSIGN_OR_RETURN(const std::string kind, KindOfDevice(config, num_gpus, program));
  ASSIGN_OR_RETURN(auto device, compute::MakeDevice(kind, {.num_threads = config.intra_op_parallelism_threads}));
  device->set_warn([](const std::string& text) { LOG(WARNING) << text; });
  return device;
}

}  // namespace official::run
