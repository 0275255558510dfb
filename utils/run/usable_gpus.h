// The GPUs that a program can compute on.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "utils/misc/gpu_count.h"

namespace official::run {

// Returns the GPUs that this process sees and that the CUDA backend, which this loads, can use; a warning says of each
// of the others, or of all, why not. Without a driver the backend is not loaded. Where several GPUs will sum together,
// misc::LoadKernelsAtOnce is to be called before.
misc::VisibleGpus UsableGpus();

// Returns the versions of the libraries that devices of a kind compute with, for a log line behind their names: " with
// CUDA 13.0 ..."; nothing for the CPU.
std::string WithLibraries(absl::string_view device_kind);

// Returns the kind of device on which a run that has so many GPUs computes: the CPU with 0.
absl::string_view DeviceKindFor(int num_gpus);

}  // namespace official::run
