// The GPUs that a program can compute on.
#pragma once

#include "absl/strings/string_view.h"
#include "utils/misc/gpu_count.h"

namespace official::run {

// Returns the GPUs that this process sees, if the CUDA backend, which this loads, can use them; otherwise a warning
// says why not. Without a driver the backend is not loaded.
misc::VisibleGpus UsableGpus();

// Returns the kind of device on which a run that has so many GPUs computes: the CPU with 0.
absl::string_view DeviceKindFor(int num_gpus);

}  // namespace official::run
