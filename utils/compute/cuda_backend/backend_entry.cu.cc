#include "utils/compute/cuda_backend/backend_entry.h"

#include <cuda_runtime.h>

#include "absl/strings/str_format.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_peer_streams.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/nccl_group.h"

namespace official::compute {
namespace {

std::string Version(int version) { return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10); }

CudaGpus VisibleGpus() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return {count, ""};
  if (error == cudaErrorInsufficientDriver) {
    cudaDriverGetVersion(&driver);  // 0: there is none
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return {0, "no NVIDIA driver is loaded"};
    return {0, absl::StrFormat("the NVIDIA driver is too old: it is for CUDA %s, this program for CUDA %s",
                               Version(driver), Version(runtime))};
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) return {0, "the NVIDIA driver lists no GPU"};
  return {0, std::string(CudaStatus(error, "cudaGetDeviceCount").message())};
}

}  // namespace
}  // namespace official::compute

extern "C" __attribute__((visibility("default"))) void OfficialRegisterCudaBackend(
    official::compute::KernelRegistry& kernels, official::compute::CudaBackend& backend) {
  for (const official::compute::KernelDef* kernel : official::compute::KernelRegistry::Global().All()) {
    kernels.Add(*kernel);
  }
  backend.visible_gpus = official::compute::VisibleGpus;
  backend.device_kind = {
      .name = official::compute::kCudaKind,
      .make_device = official::compute::CudaDevice::Make,
      .all_reduce = official::compute::AllReduceAlgorithm{"nccl", official::compute::NcclGroup::Make},
      .make_peer_streams = official::compute::MakeCudaPeerStreams,
  };
}
