// Our own kernels of Winograd's algorithm, for machines with AVX-512: faster than oneDNN's where channels are few.
#pragma once

#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/conv/geometry.h"

namespace official::compute {

// True if the windows are 3 x 3 with stride 1, channels are multiples of 16, and the machine has AVX-512.
bool WinogradSupports(const ConvGeometry& geometry);

// The kernel of a Conv2D, Conv2DBackpropInput or Conv2DBackpropFilter that WinogradSupports, its images
// channel-blocked, float32 or bfloat16, computed in float. Results do not depend on the number of threads.
Kernel MakeWinogradConv(const KernelSpec& spec);

}  // namespace official::compute
