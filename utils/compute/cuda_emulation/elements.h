// The elements of the matrices and images that the libraries' stand-ins treat, as floats.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/half.h"

namespace official::compute::cuda_emulation {

enum class ElementType { kFloat32, kBFloat16, kFloat16 };

inline int64_t SizeOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

inline float LoadElement(ElementType type, const void* data, int64_t i) {
  switch (type) {
    case ElementType::kFloat32:
      return static_cast<const float*>(data)[i];
    case ElementType::kBFloat16:
      return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
    case ElementType::kFloat16:
      break;
  }
  return static_cast<float>(static_cast<const Half*>(data)[i]);
}

inline void StoreElement(ElementType type, float value, void* data, int64_t i) {
  switch (type) {
    case ElementType::kFloat32:
      static_cast<float*>(data)[i] = value;
      return;
    case ElementType::kBFloat16:
      static_cast<BFloat16*>(data)[i] = BFloat16(value);
      return;
    case ElementType::kFloat16:
      static_cast<Half*>(data)[i] = Half(value);
      return;
  }
}

inline bool IsAligned(const void* data, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

}  // namespace official::compute::cuda_emulation
