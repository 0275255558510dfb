// HasRun: the kernels that the tests of this process have run so far (RecordKernels in op_test.h).
#pragma once

#include "absl/strings/string_view.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::testing {

// Returns true if one of the functions of op_test.h has run a kernel of the op on a device of this kind, or recorded
// it. `dtype` is its key type.
bool HasRun(OpName op, absl::string_view device_kind, DType dtype);

}  // namespace official::compute::testing
