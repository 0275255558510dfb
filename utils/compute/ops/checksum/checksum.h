// Checksums of tensors where they are, so that replicas can be compared without their variables being copied.
#pragma once

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName Checksum("Checksum");

}  // namespace official::compute::op

namespace official::compute {

// The checksums of one or more tensors, of any types -> int64 [number of tensors]. Tensors with the same bytes have the
// same checksum, on every device; those with others differ but for one case in 2^64, by chance.
Value Checksum(absl::Span<const Value> tensors);

}  // namespace official::compute
