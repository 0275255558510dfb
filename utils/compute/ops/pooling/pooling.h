// Max and average pooling over images, as TensorFlow defines them.
#pragma once

#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/window/window.h"

namespace official::compute::op {

inline constexpr OpName MaxPool("MaxPool");
inline constexpr OpName MaxPoolGrad("MaxPoolGrad");
inline constexpr OpName AvgPool("AvgPool");
inline constexpr OpName AvgPoolGrad("AvgPoolGrad");

}  // namespace official::compute::op

// The outputs of MaxPool.
namespace official::compute::max_pool {
enum Output : int { kY, kCodes };
}  // namespace official::compute::max_pool

// The inputs of MaxPoolGrad.
namespace official::compute::max_pool_grad {
enum Input : int { kDy, kCodes };
}  // namespace official::compute::max_pool_grad

namespace official::compute {

struct PoolParams {
  Size2D window = {2, 2};
  Size2D stride = {2, 2};
  Padding padding = Padding::kValid;
  Border border = {};  // for Padding::kExplicit
};

// images [N, H, W, C] float -> [N, H', W', C]: the largest value in each window; padding counts as minus infinity. The
// node's second output is uint8 of the same shape: the place in the window (row * window width + column) of the value,
// the first one of equals. The gradient needs nothing else. It fails if no window fits, if one could lie in the padding
// alone, or if it has more than 256 positions.
Value MaxPool(Value images, const PoolParams& params = {});

// The mean over the positions of each window that lie inside the image.
Value AvgPool(Value images, const PoolParams& params = {});

}  // namespace official::compute
