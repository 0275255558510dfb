// Makes devices of kind "cuda" out of the emulation, in a program that links this file and the kernels for it.

#include <memory>
#include <optional>
#include <utility>

#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_peer_streams.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/stream_work.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {
namespace {

class EmulatedDevice : public CudaDevice {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Make(const DeviceOptions& options) {
    return Ready(std::make_unique<EmulatedDevice>(options));
  }
  explicit EmulatedDevice(const DeviceOptions& options) : CudaDevice(options, /*ordinal=*/options.index) {}

  bool checks_memory() const override { return true; }
  absl::Status Forget(void* data, int64_t bytes) override {
    const auto forget = [data, bytes]() -> std::optional<std::string> {
      cuda_emulation::SetState(data, bytes, cuda_emulation::ByteState::kUnwritten);
      return std::nullopt;
    };
    return CudaStatus(cuda_emulation::GiveWork(stream(), forget), "Forget");
  }
};

const bool registered = RegisterDeviceKind({
    .name = kCudaKind,
    .make_device = EmulatedDevice::Make,
    .make_peer_streams = MakeCudaPeerStreams,
});

}  // namespace
}  // namespace official::compute
