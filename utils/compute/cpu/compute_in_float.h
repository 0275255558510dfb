// Kernels for 16-bit floats where the library or the machine does not compute in them.
#pragma once

#include "absl/status/statusor.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// Returns the kernel that `make` gives for the same node with float32 in the place of bfloat16 and float16, between
// conversions of its inputs and outputs through scratch memory.
absl::StatusOr<Kernel> ComputeInFloat(const KernelSpec& spec, const KernelFactory& make);

}  // namespace official::compute
