// The GPUs that a program can compute on.
#pragma once

#include "utils/misc/gpu_count.h"

namespace official::run {

// Those that this process sees, if the CUDA backend, which is loaded then, can use them; a warning says why not. Where
// no driver is loaded nothing else is.
misc::VisibleGpus UsableGpus();

}  // namespace official::run
