// NVRTC, CUDA's compiler at run time. cuDNN opens it for some of its algorithms, and goes without them where it finds
// none.
#pragma once

#include <string>

namespace official::compute {

// The name of its library for the dynamic loader: "libnvrtc.so.13".
std::string NvrtcName();
// True if the dynamic loader finds it.
bool FindNvrtc();

}  // namespace official::compute
