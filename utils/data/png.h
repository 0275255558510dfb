// PNG images as tensors.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"

namespace official::data {

// The image in a PNG file: uint8 [height, width, channels], channels 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB,
// alpha). Palettes become RGB, one to four bits a pixel become eight, sixteen are rounded to eight, transparency
// becomes alpha. NotFound, PermissionDenied or Aborted if the file cannot be read; DataLoss if it is not PNG, is
// damaged, is larger than 64 MiB or has more than 2^26 pixels; ResourceExhausted if there is no memory for it.
absl::StatusOr<compute::Tensor> ReadPng(const std::string& path);

// What every PNG file begins with.
bool IsPng(absl::string_view bytes);

// The same for the bytes of a file, which `name` stands for in messages.
absl::StatusOr<compute::Tensor> DecodePng(absl::string_view bytes, absl::string_view name);

}  // namespace official::data
