// tf.debugging.check_numerics: a value that is not finite ends the run of the program.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName CheckNumerics("CheckNumerics");

}  // namespace official::compute::op

namespace official::compute {

// x itself. Running it fails with OutOfRange, before any node that was built later, if an element is NaN or infinite.
// GPUs check up to 2^30 elements.
Value CheckNumerics(Value x);

}  // namespace official::compute
