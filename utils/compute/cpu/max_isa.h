// The environment variable OFFICIAL_MAX_ISA: a limit on the instruction set that kernels choose at run time.
#pragma once

#include "absl/status/status.h"

namespace official::compute {

// True if OFFICIAL_MAX_ISA=avx2: no AVX-512, whatever the machine has. (Every program needs AVX2.)
bool IsLimitedToAvx2();

// InvalidArgument if the variable has any other value. Unset or empty it limits nothing.
absl::Status CheckMaxIsa();

}  // namespace official::compute
