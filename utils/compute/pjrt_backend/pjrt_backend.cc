#include "utils/compute/pjrt_backend/pjrt_backend.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda_backend/build_info.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/pjrt_backend/backend_entry.h"
#include "utils/files/shared_object.h"

namespace official::compute {
namespace {

constexpr char kLibrary[] = "libofficial_pjrt.so";
constexpr char kPackage[] = "utils/compute/pjrt_backend";  // of the library in Bazel's output

absl::StatusOr<int> Load(const PjrtPluginOptions& options) {
  const std::string path = files::FindSharedObject(kLibrary, kPackage);
  if (path.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no ", kLibrary, " beside the program, which PJRT devices need; ",
                                            "copy both together, or run tools/python_env pjrt, which gets PJRT's "
                                            "header, and build again"));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(absl::StrCat("cannot load ", path, ": ", dlerror()));
  auto* const sources = reinterpret_cast<PjrtBackendSourcesFunction*>(dlsym(library, kPjrtBackendSources));
  auto* const open = reinterpret_cast<OpenPjrtBackendFunction*>(dlsym(library, kOpenPjrtBackend));
  if (sources == nullptr || open == nullptr || absl::string_view(sources()) != kBackendSources) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another build than this program; build both, or copy both, together"));
  }
  absl::StatusOr<PjrtBackend> backend;
  open(options, KernelRegistry::Global(), backend);
  RETURN_IF_ERROR(backend.status());
  RegisterOp(backend->merged_op);
  RegisterDeviceKind(backend->device_kind);
  return backend->num_devices;
}

}  // namespace

absl::StatusOr<int> LoadPjrtBackend(const PjrtPluginOptions& options) {
  static const auto* const loaded = new absl::StatusOr<int>(Load(options));
  return *loaded;
}

}  // namespace official::compute
