// The GPUs that a program can compute on.
#pragma once

#include "utils/misc/gpu_count.h"

namespace official::run {

// Returns the GPUs that this process sees, if the CUDA backend, which this loads, can use them; otherwise a warning
// says why not. Without a driver the backend is not loaded.
misc::VisibleGpus UsableGpus();

}  // namespace official::run
