#include "utils/compute/cuda_backend/compatibility.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace official::compute {
namespace {

std::string CapabilityText(int capability) { return absl::StrFormat("%d.%d", capability / 10, capability % 10); }

}  // namespace

bool RunsOn(absl::Span<const int> architectures, int capability) {
  if (architectures.empty()) return false;
  // Machine code runs on later capabilities of the same major version, intermediate code on all later ones.
  return capability >= architectures.back() || std::any_of(architectures.begin(), architectures.end(), [&](int a) {
           return a / 10 == capability / 10 && a <= capability;
         });
}

CudaGpus ChooseGpus(absl::Span<const FoundGpu> found, absl::Span<const int> architectures) {
  CudaGpus gpus;
  const std::string wanted =
      absl::StrJoin(architectures, ", ", [](std::string* out, int a) { absl::StrAppend(out, CapabilityText(a)); });
  for (size_t i = 0; i < found.size(); ++i) {
    if (RunsOn(architectures, found[i].capability)) {
      gpus.usable.push_back(static_cast<int>(i));
      continue;
    }
    gpus.unusable.push_back(
        absl::StrFormat("GPU %d, %s, cannot be used: it has compute capability %s, and this program was built for %s",
                        i, found[i].name, CapabilityText(found[i].capability), wanted));
  }
  if (found.empty()) {
    gpus.why_none = "the NVIDIA driver lists no GPU";
  } else if (gpus.usable.empty()) {
    gpus.why_none = gpus.unusable[0];
  }
  return gpus;
}

absl::Status CheckCudaOf(absl::string_view library, int its_cuda, int our_cuda) {
  if (its_cuda / 1000 == our_cuda / 1000) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s is for CUDA %d, this program for CUDA %d; name the folder of the one for CUDA %d in LD_LIBRARY_PATH", library,
      its_cuda / 1000, our_cuda / 1000, our_cuda / 1000));
}

std::string CudaVersionText(int version) { return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10); }

}  // namespace official::compute
