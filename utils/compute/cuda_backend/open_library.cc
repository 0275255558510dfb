#include "utils/compute/cuda_backend/open_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/compute/cuda_backend/build_info.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

absl::StatusOr<CudaBackend> OpenCudaLibrary(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load ", path, ": ", dlerror(),
                                            "; name the folders of cuDNN and cuBLAS in LD_LIBRARY_PATH"));
  }
  auto* const register_backend = reinterpret_cast<RegisterCudaBackendFunction*>(dlsym(library, kRegisterCudaBackend));
  if (register_backend == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, " is not a CUDA backend: it has no ", kRegisterCudaBackend));
  }
  auto* const sources = reinterpret_cast<CudaBackendSourcesFunction*>(dlsym(library, kCudaBackendSources));
  if (sources == nullptr || absl::string_view(sources()) != kBackendSources) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another build than this program; build both, or copy both, together"));
  }
  CudaBackend backend;
  register_backend(KernelRegistry::Global(), backend);
  return backend;
}

}  // namespace official::compute
