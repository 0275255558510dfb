// The environment variable OFFICIAL_MAX_ISA: a limit on the instruction set that kernels choose at run time.
#pragma once

#include "absl/status/status.h"

namespace official::compute {

// True if OFFICIAL_MAX_ISA=avx2: AVX-512 is not used, even if the machine has it. (Every program needs AVX2.)
bool IsLimitedToAvx2();

// Returns InvalidArgument if the variable has any other value. Unset or empty it limits nothing.
absl::Status CheckMaxIsa();

}  // namespace official::compute
