// Geometry that the nodes of the pooling family have in common.
#pragma once

#include "absl/status/statusor.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/window/window.h"

namespace official::compute {

// The largest window: its positions must fit into a uint8.
constexpr int64_t kMaxPositions = 256;

struct PoolGeometry {
  TensorType images;  // [N, H, W, C]
  TensorType output;  // [N, H', W', C]
  Window2D window;
};

// The geometry for images of this type under a node's attributes; `c` words the error.
absl::StatusOr<PoolGeometry> ResolvePool(const InferContext& c, const TensorType& images);

// The geometry of a node of any op of the family.
PoolGeometry PoolGeometryOf(const Node& node);

}  // namespace official::compute
