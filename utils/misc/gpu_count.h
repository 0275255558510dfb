// Counts and names the NVIDIA GPUs that this process can see, without linking CUDA.
#pragma once

#include <cstdlib>
#include <string>

namespace official::misc {

struct VisibleGpus {
  int count = 0;
  std::string why_none{};  // if count is 0: the reason in words, e.g. "no NVIDIA driver is loaded"
  std::string model{};     // the name of the first, e.g. "NVIDIA H200"; empty if there is none or it has no name
};

// Asks the driver, which honours CUDA_VISIBLE_DEVICES. If the driver's device file is missing nothing is loaded.
// Otherwise this initializes the driver, which takes a fraction of a second, so call it only when GPUs are wanted.
VisibleGpus CountVisibleGpus();

// Does the same with a given driver library (a path, or a name for the dynamic loader). The library stays loaded.
VisibleGpus CountGpusOfDriver(const std::string& library);

// Makes CUDA load all kernels of a library at once instead of each before its first run, unless CUDA_MODULE_LOADING in
// the environment says which. To be called before the driver is, where several GPUs or processes sum together: loading
// a kernel may wait for those that run, of which one that sums waits for the other GPUs.
inline void LoadKernelsAtOnce() { setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0); }

}  // namespace official::misc
