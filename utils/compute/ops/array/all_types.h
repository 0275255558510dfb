#pragma once

#include <vector>

#include "utils/compute/core/dtype.h"

namespace official::compute {

// The types of kernels that only move bytes.
inline std::vector<DType> AllTypes() {
  return {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
          DType::kInt32,   DType::kInt64,    DType::kUInt8,   DType::kBool};
}

}  // namespace official::compute
