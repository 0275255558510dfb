#include "utils/compute/cuda_backend/cuda_backend.h"

#include <unistd.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda_backend/backend_entry.h"
#include "utils/compute/cuda_backend/open_library.h"
#include "utils/compute/kernel/device.h"
#include "utils/files/shared_object.h"

namespace official::compute {
namespace {

constexpr char kLibrary[] = "libofficial_cuda.so";
constexpr char kPackage[] = "utils/compute/cuda_backend";  // of the library in Bazel's output

absl::StatusOr<std::string> FindLibrary() {
  const std::string path = files::FindSharedObject(kLibrary, kPackage);
  if (!path.empty()) return path;
  return absl::NotFoundError(absl::StrCat("the CUDA backend is missing: there is no ", files::ProgramFolder(), "/",
                                          kLibrary, "; build where the CUDA toolkit is installed (CUDA_HOME)"));
}

absl::StatusOr<CudaBackend> LoadLibrary() {
  ASSIGN_OR_RETURN(const std::string path, FindLibrary());
  return OpenCudaLibrary(path);
}

const absl::StatusOr<CudaBackend>& Library() {
  static const auto* const backend = new absl::StatusOr<CudaBackend>(LoadLibrary());
  return *backend;
}

// What RegisterDevices has found.
CudaGpus& Gpus() {
  static auto* const gpus = new CudaGpus;
  return *gpus;
}

absl::Status RegisterDevices() {
  // Made by the kernel driver (the second one under Windows). Loading the library takes a third of a second, which a
  // machine without a driver need not spend.
  if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) {
    return absl::FailedPreconditionError("no GPU: no NVIDIA driver is loaded");
  }
  RETURN_IF_ERROR(Library().status());
  Gpus() = Library()->find_gpus();
  if (Gpus().usable.empty()) return absl::FailedPreconditionError(absl::StrCat("no GPU: ", Gpus().why_none));
  RETURN_IF_ERROR(Library()->check_libraries());
  RegisterDeviceKind(Library()->device_kind);
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadCudaBackend() {
  // A program that links devices of this kind and their kernels needs no library.
  if (FindDeviceKind(kCudaKind) != nullptr) return absl::OkStatus();
  static const auto* const status = new absl::Status(RegisterDevices());
  return *status;
}

const CudaGpus& FoundCudaGpus() { return Gpus(); }

absl::Status LoadCudaKernels() { return Library().status(); }

}  // namespace official::compute
