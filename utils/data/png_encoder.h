// Tensors as PNG images.
#pragma once

#include <string>

#include "utils/compute/core/tensor.h"

namespace official::data {

// Returns the PNG file of `image`: uint8 [height, width, channels], not empty, with 1 (grey), 2 (grey, alpha), 3 (RGB)
// or 4 (RGB, alpha) channels.
std::string EncodePng(const compute::Tensor& image);

}  // namespace official::data
