// Geometry that the nodes of the convolution family have in common.
#pragma once

#include "absl/status/statusor.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/window/window.h"

namespace official::compute {

// The three tensors of a convolution and the windows between them.
struct ConvGeometry {
  TensorType images;   // [N, H, W, C]
  TensorType filters;  // [KH, KW, C, O]
  TensorType output;   // [N, H', W', O]
  Window2D window;
};

// The geometry for images and filters of these types under a node's attributes; `c` words the error.
absl::StatusOr<ConvGeometry> ResolveConv(const InferContext& c, const TensorType& images, const TensorType& filters);

// The geometry of a node of any op of the family.
ConvGeometry ConvGeometryOf(const Node& node);

// The way a convolution is computed on CPUs: with oneDNN, or with our kernels (winograd.h). A node may ask for one with
// the attribute "algorithm", "direct" or "winograd".
enum class ConvAlgorithm { kDirect, kWinograd };
ConvAlgorithm ConvAlgorithmOf(const Attrs& attrs);

}  // namespace official::compute
