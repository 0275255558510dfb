// The JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::train {

struct SafetensorsHeader {
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;  // at least 0 each
    int64_t begin = 0, end = 0;  // offsets from the end of the header
  };
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Reads a header; what it says is not compared with the file. DataLoss, saying what is wrong and at which byte, for
// what is not JSON of this form: unknown keys, keys that are there twice, numbers that are negative or above 2^63 - 1,
// more than 254 dimensions. Needs memory for the header's names and shapes alone.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json);

}  // namespace official::train
