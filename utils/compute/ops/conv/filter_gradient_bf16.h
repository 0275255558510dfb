// Our own kernel of filters' gradients in bfloat16, for machines that multiply pairs of it, or tiles: oneDNN 2.6's
// reach half of the speed of its other convolutions, and with tiles a third of ours.
#pragma once

#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/conv/geometry.h"

namespace official::compute {

// True if channels are multiples of 16 and the machine has AVX-512 with bfloat16; with AMX only if there are enough of
// them for it to be faster than oneDNN.
bool BFloat16FilterGradientSupports(const ConvGeometry& geometry);

// The kernel of a Conv2DBackpropFilter in bfloat16 that is supported and not empty, with images of either layout. Sums
// are in float; results do not depend on the number of threads.
Kernel MakeBFloat16FilterGradient(const KernelSpec& spec);

}  // namespace official::compute
