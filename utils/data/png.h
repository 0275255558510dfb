// PNG images as tensors.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"

namespace official::data {

// Returns the image in a PNG file: uint8 [height, width, channels], channels 1 (grey), 2 (grey, alpha), 3 (RGB) or 4
// (RGB, alpha). Palettes become RGB, one to four bits a pixel become eight, sixteen are rounded to eight, transparency
// becomes alpha. NotFound, PermissionDenied or Aborted if the file cannot be read; DataLoss if it is not PNG, is
// damaged, is larger than 64 MiB or has more than 2^26 pixels; ResourceExhausted if there is no memory for it.
absl::StatusOr<compute::Tensor> ReadPng(const std::string& path);

// True if `bytes` begin as every PNG file does.
bool IsPng(absl::string_view bytes);

// Returns the same for the bytes of a file; `name` is its name in messages.
absl::StatusOr<compute::Tensor> DecodePng(absl::string_view bytes, absl::string_view name);

}  // namespace official::data
