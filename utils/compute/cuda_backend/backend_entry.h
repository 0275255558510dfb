// The interface between a program and libofficial_cuda.so: two functions with C linkage, the library's only exports.
//
// The library has its own hidden copy of the code that it shares with the program (core, graph, the kernel registry's
// methods), linked statically like the program's. Exporting the program's copy instead would put its symbols into
// every binary's dynamic table, and which of them exist would depend on what each binary happens to use. Two copies
// are sound as long as they are code only: the library's own registries (KernelRegistry::Global(), RegisterOp,
// RegisterDeviceKind) are other objects than the program's. Its kernels register in its own KernelRegistry when it is
// loaded, which the function copies into the program's; the other registries stay unread, so its kernels may use what
// a KernelSpec gives them and no registry. Abseil, which has global state, is one shared library for both
// (third_party/BUILD). Both must be built from the same source by the same compiler, as one Bazel build does; the
// second function lets the program check that.
#pragma once

#include "absl/status/status.h"
#include "utils/compute/cuda_backend/compatibility.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// The library gives the program these in addition to kernels.
struct CudaBackend {
  CudaGpus (*find_gpus)() = nullptr;  // initializes the driver
  // The error if the libraries that the backend was loaded with are for another CUDA.
  absl::Status (*check_libraries)() = nullptr;
  DeviceKind device_kind;  // its devices are numbered as the usable GPUs
};

// Adds all kernels of kind "cuda" to `kernels`; needs no driver.
using RegisterCudaBackendFunction = void(KernelRegistry& kernels, CudaBackend& backend);
inline constexpr char kRegisterCudaBackend[] = "OfficialRegisterCudaBackend";

// Returns kBackendSources (build_info.h) as it was when the library was built.
using CudaBackendSourcesFunction = const char*();
inline constexpr char kCudaBackendSources[] = "OfficialCudaBackendSources";

}  // namespace official::compute
