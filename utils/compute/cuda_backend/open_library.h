// Opens a shared object with a CUDA backend.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/cuda_backend/backend_entry.h"

namespace official::compute {

// Loads the library at `path`, which stays loaded, and adds its kernels to the program's. Returns NotFound if it cannot
// be loaded or is no backend; FailedPrecondition, before anything of it is used, if it was not built from the same
// sources.
absl::StatusOr<CudaBackend> OpenCudaLibrary(const std::string& path);

}  // namespace official::compute
