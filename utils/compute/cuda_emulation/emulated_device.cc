// Makes devices of kind "cuda" out of the emulation, in a program that links this file and the kernels for it.

#include <memory>

#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_peer_streams.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {
namespace {

const bool registered = RegisterDeviceKind({
    .name = kCudaKind,
    .make_device = CudaDevice::Make,
    .make_peer_streams = MakeCudaPeerStreams,
});

}  // namespace
}  // namespace official::compute
