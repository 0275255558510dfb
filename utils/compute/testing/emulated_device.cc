// Makes devices of kind "cuda" out of the emulation, in a program that links this file and the kernels for it.

#include <nccl.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_peer_streams.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/nccl_functions.h"
#include "utils/compute/cuda/nccl_group.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/stream_work.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {
namespace {

class EmulatedDevice : public CudaDevice {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Make(const DeviceOptions& options) {
    if (options.index < 0 || options.index >= cuda_emulation::NumDevices()) {
      return absl::FailedPreconditionError(
          absl::StrCat("there is no gpu:", options.index, ": ", cuda_emulation::NumDevices(), " GPUs are emulated"));
    }
    return Ready(std::make_unique<EmulatedDevice>(options));
  }
  explicit EmulatedDevice(const DeviceOptions& options) : CudaDevice(options, /*ordinal=*/options.index) {}

  bool checks_memory() const override { return cuda_emulation::DoesWork(); }
  absl::Status Forget(void* data, int64_t bytes) override {
    const auto forget = [data, bytes]() -> std::optional<std::string> {
      cuda_emulation::SetState(data, bytes, cuda_emulation::ByteState::kUnwritten);
      return std::nullopt;
    };
    return CudaStatus(cuda_emulation::GiveWork(stream(), cuda_emulation::WorkKind::kCheck, forget), "Forget");
  }
};

const bool registered[] = {
    RegisterDeviceKind({
        .name = kCudaKind,
        .make_device = EmulatedDevice::Make,
        .all_reduce = AllReduceAlgorithm{"nccl", NcclGroup::Make},
        .pack_sizes = PackSizes{.most_bytes = 1 << 16, .last_bytes = 1 << 12},  // several, also for the models of tests
        .make_peer_streams = MakeCudaPeerStreams,
    }),
#define OFFICIAL_ADDRESS(function) reinterpret_cast<void*>(&::function),
    UseNcclFunctions({OFFICIAL_NCCL_FUNCTIONS(OFFICIAL_ADDRESS)}),
#undef OFFICIAL_ADDRESS
};

}  // namespace
}  // namespace official::compute
