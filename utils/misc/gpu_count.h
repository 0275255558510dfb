// How many NVIDIA GPUs this process can see, without linking CUDA.
#pragma once

#include <string>

namespace official::misc {

struct VisibleGpus {
  int count = 0;
  std::string why_none;  // if count is 0: the reason in words, e.g. "no NVIDIA driver is loaded"
};

// Asks the driver, which honours CUDA_VISIBLE_DEVICES. Where the driver's device file is absent nothing is loaded.
// Where it is there, this initializes the driver: a fraction of a second, so call it only when GPUs are wanted.
VisibleGpus CountVisibleGpus();

// The same from a given driver library (a path, or a name for the dynamic loader). The library stays loaded.
VisibleGpus CountGpusOfDriver(const std::string& library);

}  // namespace official::misc
