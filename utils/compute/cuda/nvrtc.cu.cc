#include "utils/compute/cuda/nvrtc.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace official::compute {

std::string NvrtcName() { return absl::StrCat("libnvrtc.so.", CUDART_VERSION / 1000); }

bool FindNvrtc() {
  static const bool found = dlopen(NvrtcName().c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return found;
}

}  // namespace official::compute
