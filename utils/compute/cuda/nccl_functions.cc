#include "utils/compute/cuda/nccl_functions.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

std::vector<void*>& LinkedFunctions() {
  static auto* const addresses = new std::vector<void*>;
  return *addresses;
}

}  // namespace

bool UseNcclFunctions(std::vector<void*> addresses) {
  LinkedFunctions() = std::move(addresses);
  return true;
}

absl::StatusOr<std::vector<void*>> LoadNcclFunctions(const std::string& library) {
  if (library == kNcclLibrary && !LinkedFunctions().empty()) return LinkedFunctions();
  // NCCL registers the buffers of a collective that is recorded in a CUDA graph, for which all processes of a machine
  // must record it at the same time. Here each process records when its own shapes come again. Nothing is
  // lost: NCCL registers memory of ncclMemAlloc, not that of cudaMalloc.
  setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  void* const nccl = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nccl == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("NCCL, with which several GPUs sum gradients, cannot be loaded: ", dlerror(),
                     "; name its folder in LD_LIBRARY_PATH, or give --all_reduce_alg=hierarchical_copy"));
  }
  std::vector<void*> addresses;
#define OFFICIAL_NAME(function) #function,
  for (const char* const name : {OFFICIAL_NCCL_FUNCTIONS(OFFICIAL_NAME)}) {
    addresses.push_back(dlsym(nccl, name));
    if (addresses.back() == nullptr) {
      return absl::NotFoundError(absl::StrCat(library, " is too old or is not NCCL: it has no ", name));
    }
  }
#undef OFFICIAL_NAME
  return addresses;
}

}  // namespace official::compute
