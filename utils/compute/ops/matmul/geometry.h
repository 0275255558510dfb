// Geometry that the nodes of the matrix multiplication family have in common.
#pragma once

#include "absl/status/statusor.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {

// result [batch, m, n] = a [batch, m, k] * b [batch, k, n]; a transposed matrix is stored with its last two dimensions
// swapped.
struct MatMulGeometry {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
};

// The geometry for the first two inputs under a node's attributes; `c` words the error.
absl::StatusOr<MatMulGeometry> ResolveMatMul(const InferContext& c);

// The geometry of a MatMul or FusedMatMul node.
MatMulGeometry MatMulGeometryOf(const Node& node);

}  // namespace official::compute
