#include "utils/compute/cuda_backend/backend_entry.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_peer_streams.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/nccl_group.h"
#include "utils/compute/cuda/nvrtc.h"
#include "utils/compute/cuda_backend/build_info.h"

namespace official::compute {
namespace {

// Packs are as large as in PyTorch's DistributedDataParallel, where the first is the small one. Here it is the last,
// since nothing is left to compute beside it.
constexpr PackSizes kPackSizes = {.most_bytes = 25 << 20, .last_bytes = 1 << 20};

// What the driver lists. Asking for these properties initializes no GPU.
absl::StatusOr<std::vector<FoundGpu>> ListGpus() {
  std::vector<FoundGpu> found;
  int count = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) return found;
  if (error == cudaErrorInsufficientDriver) {
    cudaDriverGetVersion(&driver);  // 0: there is none
    if (driver == 0) return absl::NotFoundError("no NVIDIA driver is loaded");
    return absl::FailedPreconditionError(
        absl::StrFormat("the NVIDIA driver is too old: it is for CUDA %s, this program for CUDA %s",
                        CudaVersionText(driver), CudaVersionText(CUDART_VERSION)));
  }
  RETURN_IF_ERROR(CudaStatus(error, "cudaGetDeviceCount"));
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties"));
    found.push_back({properties.name, properties.major * 10 + properties.minor});
  }
  return found;
}

CudaGpus FindGpus() {
  const absl::StatusOr<std::vector<FoundGpu>> found = ListGpus();
  if (!found.ok()) return {{}, {}, std::string(found.status().message())};
  return ChooseGpus(*found, kCudaArchitectures);
}

const CudaGpus& Gpus() {
  static const auto* const gpus = new CudaGpus(FindGpus());
  return *gpus;
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const DeviceOptions& options) {
  const std::vector<int>& usable = Gpus().usable;
  if (options.index < 0 || options.index >= static_cast<int>(usable.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no gpu:", options.index, ": ", usable.size(), " GPUs can be used"));
  }
  return CudaDevice::Make(options, usable[options.index]);
}

std::string CudnnText() {
  const size_t version = cudnnGetVersion();  // 91900 is 9.19.0
  return absl::StrFormat("cuDNN %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

std::string CublasText() {
  const size_t version = cublasLtGetVersion();  // 130100 is 13.1.0
  return absl::StrFormat("cuBLASLt %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

absl::Status CheckLibraries() {
  RETURN_IF_ERROR(CheckCudaOf(CudnnText(), static_cast<int>(cudnnGetCudartVersion()), CUDART_VERSION));
  return CheckCudaOf(CublasText(), static_cast<int>(cublasLtGetCudartVersion()), CUDART_VERSION);
}

std::string LibraryVersions() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  const std::string nccl = NcclGroup::LoadedVersion();
  return absl::StrCat("CUDA ", CudaVersionText(CUDART_VERSION), " with a driver for ", CudaVersionText(driver), ", ",
                      CudnnText(), ", ", CublasText(), ", ", FindNvrtc() ? "" : "no ", "NVRTC",
                      nccl.empty() ? "" : ", ", nccl);
}

}  // namespace
}  // namespace official::compute

extern "C" __attribute__((visibility("default"))) const char* OfficialCudaBackendSources() {
  return official::compute::kBackendSources;
}

extern "C" __attribute__((visibility("default"))) void OfficialRegisterCudaBackend(
    official::compute::KernelRegistry& kernels, official::compute::CudaBackend& backend) {
  for (const official::compute::KernelDef* kernel : official::compute::KernelRegistry::Global().All()) {
    kernels.Add(*kernel);
  }
  backend.find_gpus = [] { return official::compute::Gpus(); };
  backend.check_libraries = official::compute::CheckLibraries;
  backend.device_kind = {
      .name = official::compute::kCudaKind,
      .make_device = official::compute::MakeCudaDevice,
      .all_reduce = official::compute::AllReduceAlgorithm{"nccl", official::compute::NcclGroup::Make},
      .pack_sizes = official::compute::kPackSizes,
      .make_peer_streams = official::compute::MakeCudaPeerStreams,
      .library_versions = official::compute::LibraryVersions,
  };
}
