// Tells what the CUDA backend can work with: which GPUs its kernels run on, and whether the libraries that it finds
// fit.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace official::compute {

struct FoundGpu {
  std::string name;  // "NVIDIA H200"
  int capability;    // compute capability: 90 is 9.0
};

struct CudaGpus {
  std::vector<int> usable;            // the driver's numbers of the GPUs that can be used
  std::vector<std::string> unusable;  // a sentence for each of the others: its name, and why it cannot be used
  std::string why_none;               // the reason in words if there are no usable ones
};

// Returns true if kernels that were compiled for the architectures (90 is 9.0; ascending), with intermediate code for
// the last of them, run on a GPU of this capability.
bool RunsOn(absl::Span<const int> architectures, int capability);

// Divides the GPUs that the driver lists, in its order, into usable ones and others.
CudaGpus ChooseGpus(absl::Span<const FoundGpu> found, absl::Span<const int> architectures);

// Returns FailedPrecondition if a library, such as "cuDNN 9.19.0", is for another major version of CUDA than the
// backend. Versions are CUDA's numbers: 13000 is 13.0.
absl::Status CheckCudaOf(absl::string_view library, int its_cuda, int our_cuda);

// Returns "13.0" for 13000.
std::string CudaVersionText(int version);

}  // namespace official::compute
