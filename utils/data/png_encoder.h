// Tensors as PNG images.
#pragma once

#include <string>

#include "utils/compute/core/tensor.h"

namespace official::data {

// `image`: uint8 [height, width, channels], none of them 0, with 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha)
// channels.
std::string EncodePng(const compute::Tensor& image);

}  // namespace official::data
