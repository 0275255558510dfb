// The interface between a program and libofficial_pjrt.so: two functions with C linkage, the library's only exports.
//
// As libofficial_cuda.so (utils/compute/cuda_backend/backend_entry.h) the library has its own hidden copy of the code
// that it shares with the program, and registries of its own: its kernels and its op are copied into the program's, and
// it finds emitters in its own. It is never unloaded.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/pjrt_backend/pjrt_backend.h"

namespace official::compute {

struct PjrtBackend {
  DeviceKind device_kind;
  int num_devices;
  OpDef merged_op;  // of which the graphs that device_kind.merge makes consist
};

// Loads a plugin, finds its devices, and adds what the library can write in StableHLO to `kernels`.
using OpenPjrtBackendFunction = void(const PjrtPluginOptions& options, KernelRegistry& kernels,
                                     absl::StatusOr<PjrtBackend>& backend);
inline constexpr char kOpenPjrtBackend[] = "OfficialOpenPjrtBackend";

// Returns kBackendSources (build_info.h) as it was when the library was built.
using PjrtBackendSourcesFunction = const char*();
inline constexpr char kPjrtBackendSources[] = "OfficialPjrtBackendSources";

}  // namespace official::compute
